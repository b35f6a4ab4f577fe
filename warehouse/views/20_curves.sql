-- Learning curves and group statistics: how training went, step by step.

-- Mean score, return and turns per run, stage, phase and step over admitted trajectories; rejected ones are counted. gym is
-- null for a step with several gyms. by_gym: a row for every gym of a step.
CREATE OR REPLACE MACRO learning_curve(run := NULL, in_phase := 'train', in_gym := NULL, by_gym := false) AS TABLE
    SELECT t.run_id, any_value(r.recipe) AS recipe, any_value(r.profile) AS profile, any_value(r.seed) AS seed,
           t.stage, t.phase, t.step, CASE WHEN min(t.gym) = max(t.gym) THEN min(t.gym) END AS gym,
           count(*) FILTER (t.admitted) AS trajectories,
           count(*) FILTER (NOT t.admitted) AS rejected,
           avg(t.score) FILTER (t.admitted) AS score,
           avg(t.return_sum) FILTER (t.admitted) AS return_sum,
           avg(t.turns) FILTER (t.admitted) AS turns,
           avg((t.stop_reason = 'success')::INT) FILTER (t.admitted) AS success
    FROM trajectories t LEFT JOIN runs r USING (run_id)
    WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase) AND (in_gym IS NULL OR t.gym = in_gym)
    GROUP BY t.run_id, t.stage, t.phase, t.step, CASE WHEN by_gym THEN t.gym END
    ORDER BY t.run_id, t.step, t.stage, gym;

-- Which tasks every training step drew, by gym and tier: their number, their share of the step, the pass rate of their admitted
-- conversations, and the estimated pass rate of all tasks of the gym and tier after the step (null: the recipe has no task
-- curriculum).
CREATE OR REPLACE MACRO curriculum(run := NULL) AS TABLE
    WITH played AS (
        SELECT run_id, stage, step, gym, tier, count(DISTINCT task_id) AS tasks,
               count(*) FILTER (admitted) AS trajectories,
               avg((stop_reason = 'success')::INT) FILTER (admitted) AS success
        FROM trajectories WHERE phase = 'train' AND (run IS NULL OR run_id = run)
        GROUP BY run_id, stage, step, gym, tier
    )
    SELECT p.*, p.tasks / sum(p.tasks) OVER (PARTITION BY p.run_id, p.stage, p.step) AS draw_share, m.value AS estimate
    FROM played p LEFT JOIN metrics m
         ON m.run_id = p.run_id AND m.stage = p.stage AND m.step = p.step
        AND m.name = 'sampler/' || p.gym || CASE WHEN p.tier = '' THEN '' ELSE '.' || replace(p.tier, '/', '-') END || '/pass_rate'
    ORDER BY p.run_id, p.step, p.stage, p.gym, p.tier;

-- The agent's choices step by step: each choice, its frequency, and the most common content. Shows how a run's replies change,
-- for example when it collapses.
CREATE OR REPLACE MACRO reply_choices(run := NULL, in_phase := 'train') AS TABLE
    SELECT *, n / sum(n) OVER (PARTITION BY run_id, stage, phase, step) AS turn_share
    FROM (SELECT run_id, stage, phase, step, coalesce(t.choice, 'no readable call') AS choice, count(*) AS n,
                 mode(coalesce(content, message)) AS commonest, min(traj_id) AS one_id
          FROM turns t WHERE (run IS NULL OR run_id = run) AND (in_phase IS NULL OR phase = in_phase)
          GROUP BY run_id, stage, phase, step, coalesce(t.choice, 'no readable call'))
    ORDER BY run_id, step, stage, n DESC, choice;

-- Cost and progress of every training step: episodes (validation counted separately), turns, the agent's tokens and all
-- tokens, updates and CPU-seconds, each with its cumulative sum along the stage's branch. Also the entropy of sampled tokens,
-- the share of groups with different scores, and the share of trajectories trained on. Old runs lack some of these.
CREATE OR REPLACE MACRO training_log(run := NULL) AS TABLE
    WITH numbers AS (
        SELECT run_id, stage, step, nullif(regexp_extract(stage, '^rl-[0-9]+-(.*)$', 1), '') AS branch,
               max(value) FILTER (name = 'curriculum/horizon/value') AS horizon,
               max(value) FILTER (name = 'rollout/attempts/count') AS episodes,
               max(value) FILTER (name = 'validate/attempts/count') AS validation_episodes,
               max(value) FILTER (name = 'rollout/turns/sum') AS turns,
               max(value) FILTER (name = 'tokens/agent/sum') AS agent_tokens,
               max(value) FILTER (name = 'tokens/all/sum') AS all_tokens,
               max(value) FILTER (name = 'policy/updates/count') AS updates,
               max(value) FILTER (name = 'seconds/cpu/sum') AS cpu_seconds,
               coalesce(max(value) FILTER (name = 'rollout/entropy/mean'), max(value) FILTER (name = 'policy/entropy/mean'))
                   AS entropy,
               max(value) FILTER (name = 'groups/mixed/share') AS signal_share,
               max(value) FILTER (name = 'groups/trained/share') AS trained_share
        FROM metrics m WHERE (run IS NULL OR m.run_id = run) AND stage SIMILAR TO 'rl-.*' AND step > 0
        GROUP BY run_id, stage, step
    ), along AS (
        SELECT DISTINCT run_id, branch FROM numbers n
        WHERE branch IS NOT NULL OR NOT EXISTS (FROM numbers o WHERE o.run_id = n.run_id AND o.branch IS NOT NULL)
    ), summed AS (
        SELECT n.*, a.branch AS on_branch,
               sum(n.episodes) OVER so_far AS episodes_so_far, sum(n.turns) OVER so_far AS turns_so_far,
               sum(n.agent_tokens) OVER so_far AS agent_tokens_so_far, sum(n.all_tokens) OVER so_far AS all_tokens_so_far,
               sum(n.updates) OVER so_far AS updates_so_far, sum(n.cpu_seconds) OVER so_far AS cpu_seconds_so_far
        FROM numbers n JOIN along a ON n.run_id = a.run_id AND (n.branch IS NULL OR n.branch = a.branch)
        WINDOW so_far AS (PARTITION BY n.run_id, a.branch ORDER BY n.step)
    )
    SELECT DISTINCT ON (run_id, stage, step) * EXCLUDE (branch, on_branch) FROM summed ORDER BY run_id, stage, step;

-- Per gym, and per branch if the run has branches: the best validation of training, its step, and the last validation. The
-- difference shows what training on other gyms, or at another horizon, unlearnt.
CREATE OR REPLACE MACRO forgetting(run := NULL) AS TABLE
    WITH validated AS (
        SELECT run_id, nullif(regexp_extract(stage, '^rl-[0-9]+-(.*)$', 1), '') AS branch, gym, step, avg(score) AS score
        FROM trajectories t
        WHERE phase = 'validate' AND admitted AND score IS NOT NULL AND (run IS NULL OR t.run_id = run) GROUP BY ALL
    ), along AS (
        SELECT DISTINCT run_id, branch FROM validated v
        WHERE branch IS NOT NULL OR NOT EXISTS (FROM validated o WHERE o.run_id = v.run_id AND o.branch IS NOT NULL)
    )
    SELECT v.run_id, a.branch, v.gym, arg_max(v.score, v.score) AS best, arg_max(v.step, v.score) AS best_step,
           arg_max(v.score, v.step) AS last, max(v.step) AS last_step, best - last AS fall
    FROM validated v JOIN along a ON v.run_id = a.run_id AND (v.branch IS NULL OR v.branch = a.branch)
    GROUP BY v.run_id, a.branch, v.gym ORDER BY v.run_id, a.branch, v.gym;

-- The outcome of each run or branch: its last step and its best one, in mean scores at the horizon of the evaluation. collapsed: the
-- score fell by more than .1 and by more than three standard errors of the paired difference, at the horizon that the run was trained
-- at when it ended (own_horizon); a conversation with more turns counts 0 there. It uses the held-out tasks where both were evaluated,
-- else validation. held: any other run. forgot: the score fell as far, at the horizon of the evaluation alone.
CREATE OR REPLACE MACRO run_endings(run := NULL) AS TABLE
    WITH horizons AS (
        SELECT run_id, regexp_extract(stage, '^rl-[0-9]+-(.*)$', 1) AS own, arg_max(value, step) AS turns
        FROM metrics m WHERE name = 'curriculum/horizon/value' AND step > 0 AND (run IS NULL OR m.run_id = run) GROUP BY ALL
    ), validated AS (
        SELECT run_id, regexp_extract(stage, '^rl-[0-9]+-(.*)$', 1) AS own, step, gym, task_id, score, turns
        FROM trajectories t
        WHERE phase = 'validate' AND admitted AND score IS NOT NULL AND (run IS NULL OR t.run_id = run)
    ), along AS (
        SELECT DISTINCT run_id, own AS way FROM validated v
        WHERE own <> '' OR NOT EXISTS (FROM validated o WHERE o.run_id = v.run_id AND o.own <> '')
    ), ways AS (
        SELECT a.run_id, a.way, coalesce(h.turns, common.turns) AS own_horizon FROM along a
        LEFT JOIN horizons h ON h.run_id = a.run_id AND h.own = a.way
        LEFT JOIN horizons common ON common.run_id = a.run_id AND common.own = ''
    ), scored AS (
        SELECT v.run_id, w.way, v.step, v.gym, v.task_id, avg(v.score) AS score,
               avg(CASE WHEN v.turns > w.own_horizon THEN 0.0 ELSE v.score END) AS own_score
        FROM validated v JOIN ways w ON v.run_id = w.run_id AND v.own IN ('', w.way) GROUP BY ALL
    ), ends AS (
        SELECT run_id, way, count(*) AS validations, first(step ORDER BY score DESC, step) AS best_step, max(score) AS best,
               max(step) AS last_step, arg_max(score, step) AS last, first(step ORDER BY own_score DESC, step) AS own_best_step
        FROM (SELECT run_id, way, step, avg(score) AS score, avg(own_score) AS own_score FROM scored GROUP BY ALL) GROUP BY ALL
    ), on_validation AS (
        SELECT e.run_id, e.way, count(*) AS n, avg(b.score - l.score) AS fall, stddev_samp(b.score - l.score) / sqrt(n) AS error
        FROM ends e JOIN scored b ON b.run_id = e.run_id AND b.way = e.way AND b.step = e.best_step
        JOIN scored l ON l.run_id = e.run_id AND l.way = e.way AND l.step = e.last_step AND l.gym = b.gym AND l.task_id = b.task_id
        WHERE e.validations > 1 GROUP BY ALL
    ), own_validation AS (
        SELECT e.run_id, e.way, avg(b.own_score - l.own_score) AS fall,
               stddev_samp(b.own_score - l.own_score) / sqrt(count(*)) AS error
        FROM ends e JOIN scored b ON b.run_id = e.run_id AND b.way = e.way AND b.step = e.own_best_step
        JOIN scored l ON l.run_id = e.run_id AND l.way = e.way AND l.step = e.last_step AND l.gym = b.gym AND l.task_id = b.task_id
        WHERE e.validations > 1 GROUP BY ALL
    ), evaluated AS (
        SELECT t.run_id, t.policy, t.gym, t.task_id, t.task_version, w.way, avg(t.score) AS score,
               avg(CASE WHEN t.turns > w.own_horizon THEN 0.0 ELSE t.score END) AS own_score
        FROM trajectories t JOIN ways w ON w.run_id = t.run_id
             AND t.policy IN (CASE w.way WHEN '' THEN 'RL' ELSE w.way END, CASE w.way WHEN '' THEN 'RL' ELSE w.way END || ' last step')
        WHERE t.phase = 'evaluate' AND t.admitted AND t.score IS NOT NULL AND (run IS NULL OR t.run_id = run) GROUP BY ALL
    ), held_out AS (
        SELECT b.run_id, b.way, count(*) AS n, avg(b.score) AS best, avg(l.score) AS last, avg(b.score - l.score) AS fall,
               stddev_samp(b.score - l.score) / sqrt(n) AS error, avg(b.own_score - l.own_score) AS own_fall,
               stddev_samp(b.own_score - l.own_score) / sqrt(n) AS own_error
        FROM evaluated b JOIN evaluated l ON l.run_id = b.run_id AND l.way = b.way AND l.policy = b.policy || ' last step'
             AND l.gym = b.gym AND l.task_id = b.task_id AND l.task_version IS NOT DISTINCT FROM b.task_version
        GROUP BY b.run_id, b.way
    )
    SELECT e.run_id, nullif(e.way, '') AS branch, e.best_step, e.best, e.last_step, e.last, h.best AS held_out_best,
           h.last AS held_out_last, coalesce(h.n, v.n) AS tasks, coalesce(h.fall, v.fall) AS fall,
           CASE WHEN h.n IS NULL THEN v.error ELSE h.error END AS stderr,
           w.own_horizon::BIGINT AS own_horizon, coalesce(h.own_fall, o.fall) AS own_fall,
           CASE WHEN h.n IS NULL THEN o.error ELSE h.own_error END AS own_stderr,
           CASE WHEN tasks IS NULL OR tasks < 2 THEN NULL
                WHEN coalesce(h.own_fall, o.fall) > greatest({MIN_FALL}, {FALL_ERRORS} * own_stderr) THEN 'collapsed'
                ELSE 'held' END AS ending,
           ending = 'held' AND coalesce(h.fall, v.fall) > greatest({MIN_FALL}, {FALL_ERRORS} * stderr) AS forgot
    FROM ends e JOIN ways w ON w.run_id = e.run_id AND w.way = e.way
    LEFT JOIN on_validation v ON v.run_id = e.run_id AND v.way = e.way
    LEFT JOIN own_validation o ON o.run_id = e.run_id AND o.way = e.way
    LEFT JOIN held_out h ON h.run_id = e.run_id AND h.way = e.way ORDER BY e.run_id, branch;

-- Per step: groups of two or more admitted trajectories that are all good, all bad (no variance: no gradient) or mixed, with
-- the mean deviation of the run's trajectory score. Smaller groups are counted separately.
CREATE OR REPLACE MACRO group_statistics(run := NULL, in_phase := 'train') AS TABLE
    WITH scored AS (
        SELECT t.run_id, t.phase, t.stage, t.step, t.gym, t.group_id, t.admitted,
               CASE r.score WHEN 'sum' THEN t.return_sum WHEN 'mean' THEN t.return_sum / t.turns ELSE t.score_r2g END AS s
        FROM trajectories t LEFT JOIN runs r USING (run_id)
        WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    ), grouped AS (
        SELECT run_id, phase, stage, step, gym, group_id,
               count(s) FILTER (admitted) AS n, avg(s) FILTER (admitted) AS mean, stddev_pop(s) FILTER (admitted) AS std
        FROM scored GROUP BY ALL
    )
    SELECT run_id, stage, step, count(*) AS groups,
           count(*) FILTER (n < 2) AS too_small,
           count(*) FILTER (n >= 2 AND std < 1e-6 AND mean > 0) AS all_good,
           count(*) FILTER (n >= 2 AND std < 1e-6 AND mean <= 0) AS all_bad,
           count(*) FILTER (n >= 2 AND std >= 1e-6) AS mixed,
           avg(mean) FILTER (n >= 2) AS mean_score,
           avg(std) FILTER (n >= 2) AS mean_std
    FROM grouped GROUP BY run_id, stage, step ORDER BY run_id, step, stage;
