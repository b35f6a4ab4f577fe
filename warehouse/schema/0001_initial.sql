-- Schema 1. One column a line, each with its meaning: the data dictionary and the Parquet schema are read from here.
-- Later files only add tables and columns. Flags and units are explained where the column is.

CREATE TABLE turns (                   -- Every agent message and its observation; keyed (traj_id, turn).
    traj_id            BIGINT,         -- run_no << 40 | writer << 24 | n: globally unique, no coordination needed
    turn               INTEGER,        -- from 1 within the trajectory
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this; grows with every restart
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer, from 1, over all tables
    logged_at          DOUBLE,         -- Unix seconds (UTC) when it was logged; never used to order rows
    stage              VARCHAR,        -- distill, sft, rl-1 ... rl-n, evaluate
    step               INTEGER,        -- global RL step from 1, 0 before the first
    phase              VARCHAR,        -- distill, train, baseline (greedy, for remax), validate, evaluate, play
    split              VARCHAR,        -- split of the task: train, validation, test
    gym                VARCHAR,        -- the gym
    task_id            VARCHAR,        -- the task, unique within its gym
    attempt            INTEGER,        -- 0-based index of the trajectory within its group
    group_id           VARCHAR,        -- shared by the trajectories of one task in one step
    choice             VARCHAR,        -- action, search or answer; null when no call could be read
    content            VARCHAR,        -- the call's content
    thought            VARCHAR,        -- text before the call
    message            VARCHAR,        -- the agent's reply, unchanged
    observation        VARCHAR,        -- the observation
    reward             DOUBLE,         -- raw turn reward; null when scoring did not run
    flags              INTEGER,        -- sum of 1 format error, 2 choice not allowed, 4 extra calls, 8 cut at length, 16 time-out
    prompt_tokens      INTEGER,        -- tokens the policy read for this turn
    completion_tokens  INTEGER,        -- tokens it sampled
    policy_seconds     DOUBLE,         -- wall time in the policy
    env_seconds        DOUBLE,         -- wall time in gym and user together
    token_ids          INTEGER[],      -- sampled token ids, where the policy knows them
    logprobs           FLOAT[],        -- their log-probabilities in nats
    info               VARCHAR,        -- JSON: further data of the gym about the turn
    shaped             DOUBLE,         -- shaped credit of the turn; filled from credits
    advantage          DOUBLE          -- advantage of the turn's tokens; filled from credits
);

CREATE TABLE trajectories (            -- One row at the end of each trajectory; keyed traj_id.
    traj_id            BIGINT,         -- run_no << 40 | writer << 24 | n
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC) at its end
    stage              VARCHAR,        -- distill, sft, rl-1 ... rl-n, evaluate
    step               INTEGER,        -- global RL step from 1, 0 before the first
    phase              VARCHAR,        -- distill, train, baseline (greedy, for remax), validate, evaluate, play
    split              VARCHAR,        -- split of the task
    gym                VARCHAR,        -- the gym
    task_id            VARCHAR,        -- the task
    task_version       VARCHAR,        -- hash of the task's payload: the version that was played
    tier               VARCHAR,        -- difficulty tier, "" where the gym has none
    source             VARCHAR,        -- ours or published:<where>
    attempt            INTEGER,        -- 0-based index of the trajectory within its group
    group_id           VARCHAR,        -- the group
    horizon            INTEGER,        -- maximum turns allowed
    seed               BIGINT,         -- seed of the episode
    policy             VARCHAR,        -- the acting policy
    checkpoint         VARCHAR,        -- the acting checkpoint, if any
    user_name          VARCHAR,        -- the user: rule, or a model's name
    turns              INTEGER,        -- turns played
    stop_reason        VARCHAR,        -- success, horizon, format, gave_up, length, error
    score              DOUBLE,         -- the gym's metric; null when not admitted
    return_sum         DOUBLE,         -- sum of raw rewards; null when one is null or not admitted
    score_r2g          DOUBLE,         -- sum of gamma^(t-1) r_t with the run's gamma; null as return_sum
    admitted           BOOLEAN,        -- false when scoring did not run; never trained or averaged on
    reject_reason      VARCHAR,        -- reason for the rejection
    flags              INTEGER,        -- bitwise or of its turns' flags
    prompt_tokens      BIGINT,         -- sum over turns
    completion_tokens  BIGINT,         -- sum over turns
    policy_seconds     DOUBLE,         -- sum over turns
    env_seconds        DOUBLE,         -- sum over turns
    messages           VARCHAR         -- JSON: opening messages before turn 1
);

CREATE TABLE credits (                 -- Per-turn credit, known once the group is complete; keyed (traj_id, turn).
    traj_id            BIGINT,         -- the trajectory
    turn               INTEGER,        -- from 1
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    shaped             DOUBLE,         -- shaped credit
    advantage          DOUBLE          -- advantage
);

CREATE TABLE model_calls (             -- Calls of served models and their cost; keyed (traj_id, turn, n).
    traj_id            BIGINT,         -- the trajectory
    turn               INTEGER,        -- the turn it served
    n                  INTEGER,        -- from 1 within the turn
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    stage              VARCHAR,        -- stage of the trajectory
    step               INTEGER,        -- step of the trajectory
    phase              VARCHAR,        -- phase of the trajectory
    gym                VARCHAR,        -- the gym
    role               VARCHAR,        -- policy, user or judge
    model              VARCHAR,        -- the model's name
    prompt_tokens      INTEGER,        -- tokens read
    completion_tokens  INTEGER,        -- tokens written
    seconds            DOUBLE,         -- wall time
    attempts           INTEGER,        -- HTTP requests sent, 1 when the first succeeded
    price              DOUBLE,         -- US dollars; null when the model's price is not known
    error              VARCHAR         -- last error's name when all requests failed
);

CREATE TABLE metrics (                 -- Numbers of one step, named scope/subset/stat.
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    stage              VARCHAR,        -- the stage
    step               INTEGER,        -- the step
    name               VARCHAR,        -- scope/subset/stat
    value              DOUBLE          -- null when it was not a finite number
);

CREATE TABLE events (                  -- All other events, append-only.
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    kind               VARCHAR,        -- kind of event; rewind voids rows, see warehouse.md
    stage              VARCHAR,        -- the stage, where it has one
    step               INTEGER,        -- the step, where it has one
    fields             VARCHAR         -- JSON: all fields of the event
);

CREATE TABLE stages (                  -- A stage began or ended, append-only; the view stage_status has the latest row.
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    stage              VARCHAR,        -- the stage
    status             VARCHAR,        -- started, finished, failed, reused
    fields             VARCHAR         -- JSON: details
);

CREATE TABLE tasks (                   -- Tasks that a run uses; keyed (run_id, gym, task_id, version).
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    gym                VARCHAR,        -- the gym
    task_id            VARCHAR,        -- unique within the gym
    version            VARCHAR,        -- hash of the payload
    split              VARCHAR,        -- train, validation, test
    source             VARCHAR,        -- ours or published:<where>
    tier               VARCHAR,        -- difficulty tier
    payload            VARCHAR         -- JSON: everything the gym needs, including the hidden answer
);

CREATE TABLE checkpoints (             -- Checkpoints, complete on disk when logged.
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    checkpoint         VARCHAR,        -- its id
    path               VARCHAR,        -- its folder
    stage              VARCHAR,        -- the stage that wrote it
    step               INTEGER,        -- the step
    sha256             VARCHAR,        -- hash of its weights
    parent             VARCHAR,        -- the checkpoint it continues
    score              DOUBLE          -- validation score, where known
);

CREATE TABLE runs (                    -- One row per run, written once; status comes from events and stages.
    run_id             VARCHAR,        -- the run
    run_no             INTEGER,        -- its number in this warehouse; upper bits of traj_id
    name               VARCHAR,        -- name given by the researcher
    recipe             VARCHAR,        -- name of the recipe
    recipe_json        VARCHAR,        -- JSON: the resolved recipe
    recipe_hash        VARCHAR,        -- hash of the resolved recipe
    seed               BIGINT,         -- seed of the run
    backend            VARCHAR,        -- local or verl
    profile            VARCHAR,        -- laptop, qwen3-4b, ...
    shaping            VARCHAR,        -- naive, equalized, r2g, em
    score              VARCHAR,        -- trajectory score: sum or r2g
    gamma              DOUBLE,         -- discount
    k                  DOUBLE,         -- curvature of the em shaping
    form               VARCHAR,        -- advantage form: released, paper or centred
    ddof               INTEGER,        -- delta degrees of freedom of the group's standard deviation
    horizon            INTEGER,        -- horizon of the last stage
    code_version       VARCHAR,        -- commit or package version
    environment        VARCHAR,        -- JSON: platform, Python, package versions
    parent             VARCHAR,        -- the run this one continues or was started from
    created            DOUBLE          -- Unix seconds (UTC)
);

CREATE TABLE trials (                  -- Sweep trials; the latest row of each (study, number).
    study              VARCHAR,        -- name of the study
    number             INTEGER,        -- trial number within the study
    run_id             VARCHAR,        -- the trial's run
    state              VARCHAR,        -- running, complete, pruned, failed
    value              DOUBLE,         -- objective, computed from this warehouse
    params             VARCHAR,        -- JSON: suggested parameters
    fields             VARCHAR,        -- JSON: anything else (intermediate values, pruning step)
    logged_at          DOUBLE          -- Unix seconds (UTC)
);
