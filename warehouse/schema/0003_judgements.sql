-- Schema 3: the marks of a turn judge.

CREATE TABLE judgements (              -- A judge's mark of every turn of the judged trajectories; keyed (traj_id, turn).
    traj_id            BIGINT,         -- the trajectory
    turn               INTEGER,        -- from 1
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    judge              VARCHAR,        -- the judge: rule, or a model's name
    score              INTEGER,        -- 1 right, 0 flaw or consequence, -1 the major deviation; null without usable marks
    rule_score         INTEGER,        -- the rule judge's mark of the same turn
    category           VARCHAR,        -- the trajectory's category: perfect, good, good_attempt, failed, success_with_deviation, unjudged
    reward             DOUBLE,         -- the turn's reward in training; null if training left the trajectory out
    price              DOUBLE          -- US dollars: the judge's call divided by the turns; null when not known, 0 for the rule judge
);
