-- Additional results of suites: k attempts at a task, the timing of choices, preferences by aspect, replies.

-- k attempts at a task, each estimated without bias over all k of its n attempts and averaged over tasks with k admitted ones:
-- pass^k (all succeed), pass@k (one does), earned@k (one scores above 0), best@k (the best score), and the mean score of one
-- attempt. Success is the gym's stop_reason. k is 1 to 8 and powers of two up to `most`; gym null: all gyms. by_tier: a row
-- for every tier of a gym instead of the whole gym.
CREATE OR REPLACE MACRO at_k(run := NULL, in_phase := 'evaluate', most := 64, by_tier := false) AS TABLE
    WITH tried AS (
        SELECT run_id, policy, checkpoint, gym, CASE WHEN by_tier THEN tier END AS tier, horizon, task_id, count(*) AS n,
               count(*) FILTER (stop_reason = 'success') AS c, count(*) FILTER (score > 0) AS e, list(score ORDER BY score) AS scores, avg(score) AS mean
        FROM trajectories t
        WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
        GROUP BY ALL
    ), ks AS (SELECT unnest(range(1, most + 1)) AS k), counted AS (
        SELECT run_id, policy, checkpoint, gym, tier, horizon, k, mean,
               list_product([greatest(c - i, 0)::DOUBLE / (n - i) FOR i IN range(k)]) AS pass_hat_k,
               1 - list_product([greatest(n - c - i, 0)::DOUBLE / (n - i) FOR i IN range(k)]) AS pass_at_k,
               1 - list_product([greatest(n - e - i, 0)::DOUBLE / (n - i) FOR i IN range(k)]) AS earned_at_k,
               -- The r-th smallest score (from 0) is the best of C(r, k - 1) of all C(n, k) choices.
               list_sum([scores[r + 1] * k / n * list_product([1.0] || [greatest(r - j, 0)::DOUBLE / (n - 1 - j) FOR j IN range(k - 1)])
                         FOR r IN range(n)]) AS best_at_k
        FROM tried, ks WHERE k <= n AND (k <= 8 OR k & (k - 1) = 0)
    )
    SELECT run_id, policy, checkpoint, gym, tier, horizon, k, count(*) AS tasks, avg(pass_hat_k) AS pass_hat_k,
           avg(pass_at_k) AS pass_at_k, avg(earned_at_k) AS earned_at_k, avg(best_at_k) AS best_at_k, avg(mean) AS mean_score
    FROM counted
    GROUP BY GROUPING SETS ((run_id, policy, checkpoint, gym, tier, horizon, k), (run_id, policy, checkpoint, horizon, k))
    ORDER BY run_id, policy, checkpoint, horizon, gym NULLS LAST, tier NULLS LAST, k;

-- The timing of the first rewarded answer (UserBench table 5): its turn, 0 without one; the same only over trajectories that
-- have one; its reward divided by its turn; the share of trajectories that have one.
CREATE OR REPLACE MACRO first_choice(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH first AS (
        SELECT u.traj_id, min(u.turn) AS turn, arg_min(u.reward, u.turn) AS reward
        FROM turns u
        WHERE u.choice = 'answer' AND u.reward > 0 AND (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase)
        GROUP BY u.traj_id
    )
    SELECT t.run_id, t.policy, t.checkpoint, t.gym, count(*) AS n, avg(coalesce(f.turn, 0)) AS first_index,
           avg(f.turn) AS first_index_found, avg(coalesce(f.reward / f.turn, 0)) AS weighted_score,
           avg((f.turn IS NOT NULL)::INT) AS found
    FROM trajectories t LEFT JOIN first f USING (traj_id)
    WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.policy, t.checkpoint, t.gym ORDER BY t.run_id, t.policy, t.gym;

-- Preferences of the travel gym by aspect of the trip: the number held, and the shares that were elicited by asking (active),
-- were volunteered (passive), or either.
CREATE OR REPLACE MACRO aspect_preferences(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH preference AS (
        SELECT t.run_id, t.task_id, t.version, a.key AS aspect, p.value->>'id' AS preference
        FROM tasks t, json_each(t.payload, '$.aspects') a, json_each(a.value, '$.preferences') p
        WHERE t.gym = 'travel' AND (run IS NULL OR t.run_id = run)
    ), elicited AS (
        SELECT u.traj_id, u.info->>'preference' AS preference, u.info->>'elicited' AS how
        FROM turns u
        WHERE u.gym = 'travel' AND u.info->>'elicited' IS NOT NULL AND (run IS NULL OR u.run_id = run)
          AND (in_phase IS NULL OR u.phase = in_phase)
    )
    SELECT t.run_id, t.policy, t.checkpoint, p.aspect, count(*) AS preferences,
           avg((e.how IS NOT NULL)::INT) AS elicited, avg(coalesce(e.how = 'active', false)::INT) AS active,
           avg(coalesce(e.how = 'passive', false)::INT) AS passive
    FROM trajectories t
    JOIN preference p ON p.run_id = t.run_id AND p.task_id = t.task_id AND p.version = t.task_version
    LEFT JOIN elicited e ON e.traj_id = t.traj_id AND e.preference = p.preference
    WHERE t.gym = 'travel' AND t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.policy, t.checkpoint, p.aspect ORDER BY t.run_id, t.policy, p.aspect;

-- Features of replies, per step and gym: occurrences of the word "wait" per conversation (TARL's #Wait) and per turn, sampled
-- tokens per turn (TARL's Len), and the share of turns without a readable call.
CREATE OR REPLACE MACRO replies(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH each AS (
        SELECT u.traj_id, count(*) AS turns, sum(len(regexp_extract_all(u.message, '(?i)\bwait\b'))) AS waits,
               sum(u.completion_tokens) AS tokens, sum(u.flags & 1) AS unread
        FROM turns u WHERE (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase) GROUP BY u.traj_id
    )
    SELECT t.run_id, t.stage, t.step, t.policy, t.checkpoint, t.gym, count(*) AS n, avg(e.waits) AS waits,
           sum(e.waits) / sum(e.turns) AS waits_per_turn, sum(e.tokens) / sum(e.turns) AS tokens_per_turn,
           sum(e.unread) / sum(e.turns) AS format_errors
    FROM trajectories t JOIN each e USING (traj_id)
    WHERE t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.stage, t.step, t.policy, t.checkpoint, t.gym ORDER BY t.run_id, t.stage, t.step, t.policy, t.gym;

-- Scores of the travel gym by composition (UserBench figures 3 to 5): 233 is three aspects with two, three and three
-- preferences.
CREATE OR REPLACE MACRO composition_scores(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH made AS (
        SELECT run_id, task_id, version, payload->>'composition' AS composition,
               len(json_extract(payload, '$.aspects.*.preferences[*]')) AS preferences
        FROM tasks WHERE gym = 'travel' AND payload->>'composition' IS NOT NULL AND (run IS NULL OR run_id = run)
    ), means AS (
        SELECT t.run_id, t.policy, t.checkpoint, t.horizon, m.composition, grouping(t.task_id) = 0 AS of_task,
               any_value(m.preferences) AS preferences, count(*) AS n, avg(t.score) AS score, avg(t.turns) AS turns
        FROM trajectories t JOIN made m ON m.run_id = t.run_id AND m.task_id = t.task_id AND m.version = t.task_version
        WHERE t.gym = 'travel' AND t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
        GROUP BY GROUPING SETS ((t.run_id, t.policy, t.checkpoint, t.horizon, m.composition, t.task_id, t.task_version),
                                (t.run_id, t.policy, t.checkpoint, t.horizon, m.composition))
    )
    SELECT run_id, policy, checkpoint, horizon, composition, any_value(preferences) AS preferences,
           any_value(n) FILTER (NOT of_task) AS n, any_value(score) FILTER (NOT of_task) AS score,
           stddev_samp(score) FILTER (of_task) / sqrt(count(score) FILTER (of_task)) AS standard_error,
           any_value(turns) FILTER (NOT of_task) AS turns
    FROM means GROUP BY run_id, policy, checkpoint, horizon, composition ORDER BY run_id, policy, horizon, composition;
