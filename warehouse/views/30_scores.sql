-- Scores of evaluations, as the papers report them, with the published figures.

-- Mean of each gym's metric per run, policy and checkpoint, over admitted trajectories of a phase. The standard error is over tasks:
-- the attempts at a task are averaged first.
CREATE OR REPLACE MACRO gym_scores(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    WITH means AS (
        SELECT t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.gym, grouping(t.task_id) = 0 AS of_task,
               count(*) FILTER (t.admitted) AS n,
               count(*) FILTER (NOT t.admitted) AS rejected,
               avg(t.score) FILTER (t.admitted) AS score,
               avg(t.turns) FILTER (t.admitted) AS turns,
               avg((t.stop_reason = 'success')::INT) FILTER (t.admitted) AS success
        FROM trajectories t
        WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase) AND (in_split IS NULL OR t.split = in_split)
        GROUP BY GROUPING SETS ((t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.gym, t.task_id, t.task_version),
                                (t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.gym))
    )
    SELECT run_id, policy, checkpoint, phase, split, gym, any_value(n) FILTER (NOT of_task) AS n,
           any_value(rejected) FILTER (NOT of_task) AS rejected, any_value(score) FILTER (NOT of_task) AS score,
           stddev_samp(score) FILTER (of_task) / sqrt(count(score) FILTER (of_task)) AS standard_error,
           any_value(turns) FILTER (NOT of_task) AS turns, any_value(success) FILTER (NOT of_task) AS success
    FROM means GROUP BY run_id, policy, checkpoint, phase, split, gym ORDER BY run_id, policy, gym;

-- gym_scores by tier: errand by depth, wish by size, other gyms by their tiers.
CREATE OR REPLACE MACRO tier_scores(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    WITH means AS (
        SELECT t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.stage, t.step, t.gym, t.tier, grouping(t.task_id) = 0 AS of_task,
               count(*) FILTER (t.admitted) AS n, avg(t.score) FILTER (t.admitted) AS score, avg(t.turns) FILTER (t.admitted) AS turns
        FROM trajectories t
        WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase) AND (in_split IS NULL OR t.split = in_split)
        GROUP BY GROUPING SETS (
            (t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.stage, t.step, t.gym, t.tier, t.task_id, t.task_version),
            (t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.stage, t.step, t.gym, t.tier))
    )
    SELECT run_id, policy, checkpoint, phase, split, stage, step, gym, tier,
           any_value(n) FILTER (NOT of_task) AS n, any_value(score) FILTER (NOT of_task) AS score,
           stddev_samp(score) FILTER (of_task) / sqrt(count(score) FILTER (of_task)) AS standard_error,
           any_value(turns) FILTER (NOT of_task) AS turns
    FROM means GROUP BY run_id, policy, checkpoint, phase, split, stage, step, gym, tier
    ORDER BY run_id, stage, step, policy, gym, tier;

-- Share of an evaluation's admitted trajectories that were solved within 1, 2 ... horizon turns, per gym and tier (tier null:
-- the whole gym). If the agent is not told its number of turns (brief prompts), this is its score by turns allowed. An agent
-- that is shown how many turns it has left plays each horizon otherwise, so its run is refused, and left out among all runs.
CREATE OR REPLACE MACRO score_by_turns(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    WITH allowed AS (
        SELECT t.run_id, t.policy, t.checkpoint, t.phase, t.split, t.stage, t.step, t.gym, t.tier,
               unnest(range(1, t.horizon + 1)) AS turns_allowed, t.stop_reason,
               CASE WHEN t.flags & 32 > 0
                    THEN error('The agent of run ' || t.run_id || ' saw how many turns it had left (model.turns_left), so its '
                               || 'score at fewer turns is not known. Play each horizon: userrl evaluate --horizon 4..16')
                    ELSE t.turns END AS turns
        FROM trajectories t
        WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
          AND (in_split IS NULL OR t.split = in_split) AND (run IS NOT NULL OR t.flags & 32 = 0)
    )
    SELECT run_id, policy, checkpoint, phase, split, stage, step, gym, tier, turns_allowed,
           count(*) AS n, avg((stop_reason = 'success' AND turns <= turns_allowed)::INT) AS solved
    FROM allowed
    GROUP BY GROUPING SETS ((run_id, policy, checkpoint, phase, split, stage, step, gym, tier, turns_allowed),
                            (run_id, policy, checkpoint, phase, split, stage, step, gym, turns_allowed))
    HAVING grouping(tier) = 1 OR tier <> ''  -- a gym without tiers has the rows of all tiers alone
    ORDER BY run_id, stage, step, policy, gym, tier NULLS FIRST, turns_allowed;

-- Mean over all tasks of all gyms, each task with equal weight (UserRL table 3, "micro average").
CREATE OR REPLACE MACRO micro_average(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    SELECT run_id, policy, checkpoint, phase, split, count(*) AS gyms, sum(n)::BIGINT AS n, sum(rejected)::BIGINT AS rejected,
           sum(score * n) / sum(n) AS micro_average, avg(score) AS macro_average
    FROM gym_scores(run := run, in_phase := in_phase, in_split := in_split)
    GROUP BY run_id, policy, checkpoint, phase, split ORDER BY run_id, policy;

-- Number of the last turn with a reward other than zero, 0 without one, averaged (UserRL section 4.3); gym null: all. Like the
-- next two queries, it is null for imported conversations without turn rewards.
CREATE OR REPLACE MACRO effective_turns(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    WITH each AS (
        SELECT u.traj_id, CASE WHEN bool_and(u.reward IS NOT NULL) THEN coalesce(max(u.turn) FILTER (u.reward <> 0), 0) END AS last
        FROM turns u WHERE (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase) GROUP BY u.traj_id
    )
    SELECT t.run_id, t.policy, t.checkpoint, t.gym, count(*) AS n, avg(CASE WHEN each.traj_id IS NULL THEN 0 ELSE each.last END) AS effective_turns
    FROM trajectories t LEFT JOIN each USING (traj_id)
    WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
      AND (in_split IS NULL OR t.split = in_split)
    GROUP BY GROUPING SETS ((t.run_id, t.policy, t.checkpoint, t.gym), (t.run_id, t.policy, t.checkpoint))
    ORDER BY t.run_id, t.policy, t.gym NULLS LAST;

-- Sum of r_t / t, averaged (UserRL section 4.3, the first turn has weight 1); gym null: all gyms.
CREATE OR REPLACE MACRO time_weighted(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    WITH each AS (
        SELECT u.traj_id, CASE WHEN bool_and(u.reward IS NOT NULL) THEN sum(u.reward / u.turn) END AS weighted
        FROM turns u WHERE (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase) GROUP BY u.traj_id
    )
    SELECT t.run_id, t.policy, t.checkpoint, t.gym, count(*) AS n, avg(CASE WHEN each.traj_id IS NULL THEN 0 ELSE each.weighted END) AS time_weighted
    FROM trajectories t LEFT JOIN each USING (traj_id)
    WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
      AND (in_split IS NULL OR t.split = in_split)
    GROUP BY GROUPING SETS ((t.run_id, t.policy, t.checkpoint, t.gym), (t.run_id, t.policy, t.checkpoint))
    ORDER BY t.run_id, t.policy, t.gym NULLS LAST;

-- Number of turns per conversation that earned exactly 1 and exactly .8, averaged (the released eval.py of UserRL counts
-- travel's best and correct choices this way).
CREATE OR REPLACE MACRO reward_counts(run := NULL, in_phase := 'evaluate', in_split := NULL) AS TABLE
    WITH each AS (
        SELECT u.traj_id, CASE WHEN bool_and(u.reward IS NOT NULL) THEN count(*) FILTER (u.reward = 1) END AS ones,
               CASE WHEN bool_and(u.reward IS NOT NULL) THEN count(*) FILTER (u.reward = 0.8::DOUBLE) END AS eights
        FROM turns u WHERE (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase) GROUP BY u.traj_id
    )
    SELECT t.run_id, t.policy, t.checkpoint, t.gym, count(*) AS n, avg(CASE WHEN each.traj_id IS NULL THEN 0 ELSE each.ones END) AS avg_number_of_1,
           avg(CASE WHEN each.traj_id IS NULL THEN 0 ELSE each.eights END) AS avg_number_of_08
    FROM trajectories t LEFT JOIN each USING (traj_id)
    WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
      AND (in_split IS NULL OR t.split = in_split)
    GROUP BY t.run_id, t.policy, t.checkpoint, t.gym ORDER BY t.run_id, t.policy, t.gym;

-- pass^k: the probability that k trajectories of a task all succeed (tau-bench). It is estimated without bias as C(c,k) /
-- C(n,k) per task and averaged over tasks with at least k admitted ones. Success is the gym's stop_reason or, with a
-- threshold, a score that reaches it.
CREATE OR REPLACE MACRO pass_hat_k(run := NULL, in_phase := 'evaluate', most := 4, threshold := NULL) AS TABLE
    WITH tried AS (
        SELECT run_id, policy, checkpoint, gym, split, task_id, count(*) AS n,
               count(*) FILTER (CASE WHEN threshold IS NULL THEN stop_reason = 'success' ELSE score >= threshold END) AS c
        FROM trajectories t
        WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
        GROUP BY ALL
    )
    SELECT run_id, policy, checkpoint, gym, split, k, count(*) AS tasks,
           avg(list_product([greatest(c - i, 0)::DOUBLE / (n - i) FOR i IN range(k)])) AS pass_hat_k
    FROM tried, (SELECT unnest(range(1, most + 1)) AS k) WHERE k <= n
    GROUP BY run_id, policy, checkpoint, gym, split, k ORDER BY run_id, policy, gym, k;

-- The protocol of each evaluation, per run, policy, checkpoint and gym: the suite, data (own or published, with its tiers),
-- user model, horizon, attempts, tasks and the version of the benchmark (a hash of the played task versions).
CREATE OR REPLACE MACRO evaluation_setting(run := NULL, in_phase := 'evaluate') AS TABLE
    SELECT t.run_id, any_value(coalesce(r.profile, '')) AS profile, any_value(coalesce(r.recipe_json->>'suite', '')) AS suite, t.policy, t.checkpoint, t.gym,
           string_agg(DISTINCT CASE WHEN t.tier = '' OR t.source <> 'ours' THEN t.source ELSE t.source || ':' || t.tier END, ', '
                      ORDER BY CASE WHEN t.tier = '' OR t.source <> 'ours' THEN t.source ELSE t.source || ':' || t.tier END)
               AS data,
           string_agg(DISTINCT coalesce(t.user_name, ''), ', ' ORDER BY coalesce(t.user_name, '')) AS user_model,
           max(t.horizon) AS horizon, count(DISTINCT t.attempt) AS attempts, count(DISTINCT t.task_id) AS tasks,
           string_agg(DISTINCT t.split, ', ' ORDER BY t.split) AS split,
           left(md5(string_agg(DISTINCT t.task_version, ',' ORDER BY t.task_version)), 8) AS benchmark_version
    FROM trajectories t LEFT JOIN runs r USING (run_id)
    WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.policy, t.checkpoint, t.gym ORDER BY t.run_id, t.policy, t.gym;

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
