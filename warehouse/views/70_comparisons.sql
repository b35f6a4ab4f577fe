-- Inputs of comparisons and reports: scores by task, scores by seed, the course and the end of conversations.

-- Per run, policy and task the scores of its admitted attempts, in order: the rows that two checkpoints are paired by. own_score:
-- the mean within the horizon that the run was trained at when it ended (more turns count 0); the score where it trained nothing.
CREATE OR REPLACE MACRO task_scores(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH horizons AS (
        SELECT run_id, coalesce(nullif(regexp_extract(stage, '^rl-[0-9]+-(.*)$', 1), ''), 'RL') AS way, arg_max(value, step) AS turns
        FROM metrics m WHERE name = 'curriculum/horizon/value' AND step > 0 AND (run IS NULL OR m.run_id = run) GROUP BY ALL
    )
    SELECT t.run_id, t.policy, t.checkpoint, t.step, t.gym, t.tier, t.source, t.task_id, t.task_version,
           any_value(coalesce(t.user_name, '')) AS user_model, max(t.horizon) AS horizon, count(*) AS attempts,
           list(t.score ORDER BY t.attempt) AS scores, avg(t.score) AS score,
           avg(CASE WHEN t.turns > h.turns THEN 0.0 ELSE t.score END) AS own_score
    FROM trajectories t LEFT JOIN horizons h ON h.run_id = t.run_id AND h.way = split_part(t.policy, ' ', 1)
    WHERE t.admitted AND t.score IS NOT NULL AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.policy, t.checkpoint, t.step, t.gym, t.tier, t.source, t.task_id, t.task_version
    ORDER BY t.run_id, t.policy, t.gym, t.task_id;

-- Tasks that two policies (of one run or of two) both played, with the mean score of each: difference is b minus a. The task
-- is the unit here: this compares two checkpoints, and says nothing about their recipes.
CREATE OR REPLACE MACRO paired_tasks(run := NULL, policy_a := 'SFT', policy_b := 'RL', other_run := NULL) AS TABLE
    SELECT a.gym, a.tier, a.task_id, a.task_version, a.run_id AS run_a, b.run_id AS run_b, a.score AS score_a,
           b.score AS score_b, b.score - a.score AS difference, a.attempts AS attempts_a, b.attempts AS attempts_b
    FROM task_scores(run := run) a
    JOIN task_scores(run := coalesce(other_run, run)) b USING (gym, task_id, task_version)
    WHERE a.policy = policy_a AND b.policy = policy_b ORDER BY a.gym, a.task_id;

-- One row per run and policy: the mean score over all held-out tasks, each task with equal weight. The seed is the unit of a
-- question about recipes: join the rows of two recipes on seed and take Student's t of the differences. Runs of `userrl reverify`
-- are left out, because each has the recipe and the seed of the run whose conversations it scored again.
CREATE OR REPLACE MACRO seed_scores(of_recipe := NULL, of_profile := NULL) AS TABLE
    SELECT r.recipe, r.recipe_hash, r.profile, r.seed, s.run_id, s.policy, s.checkpoint, s.step, count(*) AS tasks,
           avg(s.score) AS score
    FROM task_scores() s JOIN runs r USING (run_id)
    WHERE r.kind IS NULL AND NOT coalesce(starts_with(r.run_id, r.parent || '-reverify-'), false)
      AND (of_recipe IS NULL OR r.recipe = of_recipe) AND (of_profile IS NULL OR r.profile = of_profile)
    GROUP BY r.recipe, r.recipe_hash, r.profile, r.seed, s.run_id, s.policy, s.checkpoint, s.step
    ORDER BY r.recipe, r.profile, r.seed, s.policy;

-- Stop reasons of trajectories: counts and shares of each reason, per run, phase and policy (in training: the acting policy).
CREATE OR REPLACE MACRO stop_reasons(run := NULL, in_phase := 'evaluate') AS TABLE
    SELECT t.run_id, t.phase, t.policy, t.stop_reason, count(*) AS trajectories,
           count(*) / sum(count(*)) OVER (PARTITION BY t.run_id, t.phase, t.policy) AS share
    FROM trajectories t WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.phase, t.policy, t.stop_reason ORDER BY t.run_id, t.phase, t.policy, trajectories DESC;

-- Reasons for rejected trajectories, per run, phase and gym, the most frequent first.
CREATE OR REPLACE MACRO reject_reasons(run := NULL, in_phase := NULL) AS TABLE
    SELECT t.run_id, t.phase, t.gym, coalesce(t.reject_reason, '') AS reject_reason, count(*) AS trajectories
    FROM trajectories t
    WHERE NOT t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.phase, t.gym, t.reject_reason ORDER BY t.run_id, trajectories DESC, t.phase, t.gym;
