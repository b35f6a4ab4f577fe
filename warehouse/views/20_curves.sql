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
