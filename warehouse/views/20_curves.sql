-- Learning curves and group statistics: how training went, step by step.

-- Mean score, return and turns per run, stage, phase and step over admitted trajectories; rejected ones are counted.
CREATE OR REPLACE MACRO learning_curve(run := NULL, in_phase := 'train', in_gym := NULL) AS TABLE
    SELECT t.run_id, any_value(r.recipe) AS recipe, any_value(r.profile) AS profile, any_value(r.seed) AS seed,
           t.stage, t.phase, t.step,
           count(*) FILTER (t.admitted) AS trajectories,
           count(*) FILTER (NOT t.admitted) AS rejected,
           avg(t.score) FILTER (t.admitted) AS score,
           avg(t.return_sum) FILTER (t.admitted) AS return_sum,
           avg(t.turns) FILTER (t.admitted) AS turns,
           avg((t.stop_reason = 'success')::INT) FILTER (t.admitted) AS success
    FROM trajectories t LEFT JOIN runs r USING (run_id)
    WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase) AND (in_gym IS NULL OR t.gym = in_gym)
    GROUP BY t.run_id, t.stage, t.phase, t.step
    ORDER BY t.run_id, t.step, t.stage;

-- What the agent's turns were, step by step: which choice, how often, and what was said most with it. Shows how a run's replies
-- change, as when it collapses.
CREATE OR REPLACE MACRO reply_choices(run := NULL, in_phase := 'train') AS TABLE
    SELECT *, n / sum(n) OVER (PARTITION BY run_id, stage, phase, step) AS turn_share
    FROM (SELECT run_id, stage, phase, step, coalesce(t.choice, 'no readable call') AS choice, count(*) AS n,
                 mode(coalesce(content, message)) AS commonest, min(traj_id) AS one_id
          FROM turns t WHERE (run IS NULL OR run_id = run) AND (in_phase IS NULL OR phase = in_phase)
          GROUP BY run_id, stage, phase, step, coalesce(t.choice, 'no readable call'))
    ORDER BY run_id, step, stage, n DESC, choice;

-- What every training step cost and how it went: episodes (those of validations apart), turns, tokens of the agent and of all,
-- updates, CPU-seconds, each with its sum so far along the stage's branch; entropy of what was sampled, share of groups that
-- differ, share of trajectories trained on. Runs of old lack some.
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

-- Per gym, and branch where a run has them: the best validation of training, when it was, and the last one. What training on
-- other gyms, or at another horizon, unlearnt is the difference.
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

-- Per step: groups of two or more admitted trajectories that are all good, all bad (no variance: no gradient) or mixed, with
-- the mean deviation of the run's trajectory score; groups with fewer of them are counted apart.
CREATE OR REPLACE MACRO group_statistics(run := NULL, in_phase := 'train') AS TABLE
    WITH scored AS (
        SELECT t.run_id, t.stage, t.step, t.gym, t.group_id, t.admitted,
               CASE r.score WHEN 'sum' THEN t.return_sum WHEN 'mean' THEN t.return_sum / t.turns ELSE t.score_r2g END AS s
        FROM trajectories t LEFT JOIN runs r USING (run_id)
        WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    ), grouped AS (
        SELECT run_id, stage, step, gym, group_id,
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
