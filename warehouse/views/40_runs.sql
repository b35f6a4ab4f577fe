-- Single trajectories, cost, and the state of runs.

-- All turns of one trajectory, in order.
CREATE OR REPLACE MACRO trajectory(id) AS TABLE
    SELECT turn, choice, content, observation, reward, shaped, advantage, flags, thought, message, prompt_tokens,
           completion_tokens, policy_seconds, env_seconds, info, run_id, gym, task_id, attempt, stage, step, phase
    FROM turns WHERE traj_id = id ORDER BY turn;

-- The best demonstrations per run and gym: by score, then fewer turns, then id.
CREATE OR REPLACE MACRO top_demonstrations(run := NULL, per_gym := 10, in_phase := 'distill') AS TABLE
    SELECT run_id, gym, row_number() OVER best AS rank, traj_id, task_id, policy, score, turns, stop_reason
    FROM trajectories t
    WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    WINDOW best AS (PARTITION BY run_id, gym ORDER BY score DESC, turns, traj_id)
    QUALIFY rank <= per_gym ORDER BY run_id, gym, rank;

-- Cost of served models per run, role and model: calls, tokens, seconds, US dollars where the price is known.
CREATE OR REPLACE MACRO cost(run := NULL) AS TABLE
    SELECT m.run_id, m.role, m.model, count(*) AS calls, count(m.error) AS failed,
           sum(m.attempts - 1)::BIGINT AS retries,
           sum(m.prompt_tokens)::BIGINT AS prompt_tokens, sum(m.completion_tokens)::BIGINT AS completion_tokens,
           sum(m.seconds) AS seconds, sum(m.price) AS dollars, count(*) FILTER (m.price IS NULL) AS unpriced_calls
    FROM model_calls_all m WHERE (run IS NULL OR m.run_id = run)
    GROUP BY m.run_id, m.role, m.model ORDER BY m.run_id, m.role, m.model;

-- The slowest trajectories, with their time as a multiple of the median of their run, stage and gym, and its distribution.
CREATE OR REPLACE MACRO stragglers(run := NULL, most := 20) AS TABLE
    WITH usual AS (
        SELECT run_id, stage, gym, median(policy_seconds + env_seconds) AS seconds
        FROM trajectories t WHERE (run IS NULL OR t.run_id = run) GROUP BY ALL
    ), slow AS (
        SELECT *, policy_seconds + env_seconds AS took FROM trajectories t WHERE (run IS NULL OR t.run_id = run)
        ORDER BY took DESC, traj_id LIMIT most
    )
    SELECT s.run_id, s.stage, s.step, s.phase, s.gym, s.traj_id, s.task_id, s.turns, s.stop_reason, s.took AS seconds,
           s.env_seconds / nullif(s.took, 0) AS env_share, s.took / nullif(u.seconds, 0) AS times_median
    FROM slow s LEFT JOIN usual u USING (run_id, stage, gym) ORDER BY s.took DESC, s.traj_id;

-- The state of every run: starts, latest stage, last training step, trajectories, rejected, superseded, last activity.
CREATE OR REPLACE MACRO run_status(run := NULL) AS TABLE
    WITH played AS (
        SELECT run_id, count(*) AS trajectories, sum(turns)::BIGINT AS turns, count(*) FILTER (NOT admitted) AS rejected,
               max(step) AS step, max(logged_at) AS logged_at
        FROM trajectories GROUP BY run_id
    ), every AS (SELECT run_id, count(*) AS n FROM trajectories_all GROUP BY run_id
    ), latest AS (
        SELECT run_id, stage, status, incarnation, logged_at FROM stages
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY incarnation DESC, seq DESC) = 1
    )
    SELECT r.run_id, r.name, r.recipe, r.profile, r.seed, l.incarnation AS starts, l.stage, l.status, p.step,
           coalesce(p.trajectories, 0) AS trajectories, coalesce(p.turns, 0) AS turns, coalesce(p.rejected, 0) AS rejected,
           coalesce(e.n - p.trajectories, e.n, 0) AS superseded, make_timestamp((r.created * 1e6)::BIGINT) AS created,
           make_timestamp((greatest(p.logged_at, l.logged_at, r.created) * 1e6)::BIGINT) AS last_sign
    FROM runs r LEFT JOIN played p USING (run_id) LEFT JOIN every e USING (run_id) LEFT JOIN latest l USING (run_id)
    WHERE (run IS NULL OR r.run_id = run) ORDER BY r.created, r.run_no;
