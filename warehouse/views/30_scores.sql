-- Scores of evaluations, as the papers report them, and the published figures beside them.

-- Mean of each gym's metric per run, policy and checkpoint, over admitted trajectories of a phase.
CREATE OR REPLACE MACRO gym_scores(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    SELECT t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.gym,
           count(*) FILTER (t.admitted) AS n,
           count(*) FILTER (NOT t.admitted) AS rejected,
           avg(t.score) FILTER (t.admitted) AS score,
           stddev_samp(t.score) FILTER (t.admitted) / sqrt(count(*) FILTER (t.admitted)) AS standard_error,
           avg(t.turns) FILTER (t.admitted) AS turns,
           avg((t.stop_reason = 'success')::INT) FILTER (t.admitted) AS success
    FROM trajectories t
    WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase) AND (in_split IS NULL OR t.split = in_split)
    GROUP BY t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.gym
    ORDER BY t.run_id, t.policy, t.gym;

-- Mean over all tasks of all gyms, each task weighing the same (UserRL table 3, "micro average").
CREATE OR REPLACE MACRO micro_average(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    SELECT run_id, policy, checkpoint, phase, split, count(*) AS gyms, sum(n)::BIGINT AS n, sum(rejected)::BIGINT AS rejected,
           sum(score * n) / sum(n) AS micro_average, avg(score) AS macro_average
    FROM gym_scores(run := run, in_phase := in_phase, in_split := in_split)
    GROUP BY run_id, policy, checkpoint, phase, split ORDER BY run_id, policy;

-- Number of the last turn with a reward other than zero, 0 without one, averaged (UserRL section 4.3); gym null: all.
CREATE OR REPLACE MACRO effective_turns(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    WITH each AS (
        SELECT u.traj_id, max(u.turn) FILTER (u.reward <> 0) AS last
        FROM turns u WHERE (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase) GROUP BY u.traj_id
    )
    SELECT t.run_id, t.policy, t.checkpoint, t.gym, count(*) AS n, avg(coalesce(each.last, 0)) AS effective_turns
    FROM trajectories t LEFT JOIN each USING (traj_id)
    WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
      AND (in_split IS NULL OR t.split = in_split)
    GROUP BY GROUPING SETS ((t.run_id, t.policy, t.checkpoint, t.gym), (t.run_id, t.policy, t.checkpoint))
    ORDER BY t.run_id, t.policy, t.gym NULLS LAST;

-- Sum of r_t / t, averaged (UserRL section 4.3, the first turn weighing 1); gym null: all gyms.
CREATE OR REPLACE MACRO time_weighted(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    WITH each AS (
        SELECT u.traj_id, sum(u.reward / u.turn) AS weighted
        FROM turns u WHERE (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase) GROUP BY u.traj_id
    )
    SELECT t.run_id, t.policy, t.checkpoint, t.gym, count(*) AS n, avg(coalesce(each.weighted, 0)) AS time_weighted
    FROM trajectories t LEFT JOIN each USING (traj_id)
    WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
      AND (in_split IS NULL OR t.split = in_split)
    GROUP BY GROUPING SETS ((t.run_id, t.policy, t.checkpoint, t.gym), (t.run_id, t.policy, t.checkpoint))
    ORDER BY t.run_id, t.policy, t.gym NULLS LAST;

-- pass^k: the chance that k trajectories of a task all succeed, estimated without bias as C(c,k) / C(n,k) per task and
-- averaged over tasks with at least k admitted ones (tau-bench); success means score >= threshold.
CREATE OR REPLACE MACRO pass_hat_k(run := NULL, in_phase := 'evaluate', most := 4, threshold := 1.0) AS TABLE
    WITH tried AS (
        SELECT run_id, policy, checkpoint, gym, split, task_id, count(*) AS n, count(*) FILTER (score >= threshold) AS c
        FROM trajectories t
        WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
        GROUP BY ALL
    )
    SELECT run_id, policy, checkpoint, gym, split, k, count(*) AS tasks,
           avg(list_product([greatest(c - i, 0)::DOUBLE / (n - i) FOR i IN range(k)])) AS pass_hat_k
    FROM tried, (SELECT unnest(range(1, most + 1)) AS k) WHERE k <= n
    GROUP BY run_id, policy, checkpoint, gym, split, k ORDER BY run_id, policy, gym, k;

-- A run's evaluation beside UserRL table 3, gym by gym; by default the rows with the run's own shaping and score.
CREATE OR REPLACE MACRO beside_published(run := NULL, of_model := NULL, every := false) AS TABLE
    WITH ours AS (
        SELECT run_id, policy, gym, n, score FROM gym_scores(run := run)
        UNION ALL SELECT run_id, policy, 'micro_average', n, micro_average FROM micro_average(run := run)
    )
    SELECT o.run_id, r.name, o.policy, o.gym, o.n, o.score, p.model AS published_model, p.section,
           p.turn_shaping, p.trajectory_score, p.score AS published, o.score - p.score AS difference
    FROM ours o LEFT JOIN runs r USING (run_id) LEFT JOIN reference.userrl_table3 p
      ON p.gym = o.gym AND (of_model IS NULL OR p.model = of_model)
     AND (every OR p.section <> 'trained' OR (p.turn_shaping = r.shaping AND p.trajectory_score = r.score))
    ORDER BY o.run_id, o.policy, o.gym, p.model;

-- The micro averages of UserRL table 3 recomputed from its per-gym figures and table 2's numbers of test tasks.
CREATE OR REPLACE MACRO published_micro_average() AS TABLE
    WITH weighed AS (
        SELECT s.section, s.model, s.turn_shaping, s.trajectory_score,
               sum(s.score * g.test) FILTER (s.gym <> 'micro_average') / sum(g.test) AS recomputed,
               max(s.score) FILTER (s.gym = 'micro_average') AS printed
        FROM reference.userrl_table3 s LEFT JOIN reference.userrl_table2_gyms g USING (gym)
        GROUP BY ALL
    )
    SELECT *, recomputed - printed AS difference FROM weighed ORDER BY section DESC, model, turn_shaping, trajectory_score;
