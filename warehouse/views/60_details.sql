-- Joins for many questions: turns with their trajectory's outcome, lineage, and UserBench's auxiliary metrics.

-- Every turn with the outcome of its trajectory: score, stop_reason, admitted, reject_reason; null while it is being played.
CREATE OR REPLACE MACRO turn_details(run := NULL) AS TABLE
    SELECT u.*, t.score, t.return_sum, t.turns AS of_turns, t.stop_reason, t.admitted, t.reject_reason, t.task_version,
           t.policy, t.checkpoint, t.user_name, t.horizon
    FROM turns u LEFT JOIN trajectories t USING (traj_id) WHERE (run IS NULL OR u.run_id = run);

-- The origin of each score: the run and its recipe, the acting checkpoint and its ancestors, the number and mean score of its
-- cold start's demonstrations, and the version of the task.
CREATE OR REPLACE MACRO lineage(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH RECURSIVE ancestry AS (
        SELECT run_id, checkpoint AS leaf, checkpoint, parent, [checkpoint] AS path FROM checkpoints
        UNION ALL
        SELECT a.run_id, a.leaf, c.checkpoint, c.parent, list_append(a.path, c.checkpoint)
        FROM ancestry a JOIN checkpoints c ON c.checkpoint = a.parent AND NOT list_contains(a.path, c.checkpoint)
    ), chain AS (
        SELECT run_id, leaf, max_by(path, len(path)) AS checkpoints FROM ancestry GROUP BY run_id, leaf
    ), learnt AS (
        SELECT d.run_id, count(DISTINCT d.traj_id) AS demonstrations, avg(t.score) AS demonstration_score
        FROM demonstrations d LEFT JOIN trajectories t ON t.traj_id = d.traj_id GROUP BY d.run_id
    )
    SELECT t.traj_id, t.score, t.gym, t.task_id, t.task_version, t.split, t.run_id, r.recipe, r.recipe_hash, r.seed,
           r.code_version, r.parent AS parent_run, t.policy, t.checkpoint, c.sha256, chain.checkpoints,
           l.demonstrations, l.demonstration_score
    FROM trajectories t LEFT JOIN runs r USING (run_id)
    LEFT JOIN (SELECT run_id, checkpoint, any_value(sha256) AS sha256 FROM checkpoints GROUP BY ALL) c
        ON c.run_id = t.run_id AND c.checkpoint = t.checkpoint
    LEFT JOIN chain ON chain.run_id = t.run_id AND chain.leaf = t.checkpoint
    LEFT JOIN learnt l ON l.run_id = t.run_id
    WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase);

-- UserBench's auxiliary metrics over the travel gym (its appendix C), averaged over admitted trajectories: shares of aspects
-- with the best (or any correct) option chosen, of preferences elicited, and of valid searches and actions. Searches that the
-- gym failed on purpose are left out of numerator and denominator.
CREATE OR REPLACE MACRO userbench(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH size AS (
        SELECT run_id, task_id, version, len(json_keys(payload, '$.aspects')) AS aspects,
               len(json_extract(payload, '$.aspects.*.preferences[*]')) AS preferences
        FROM tasks WHERE gym = 'travel'
    ), choice AS (
        SELECT u.traj_id,
               count(DISTINCT c.key[1]) FILTER (c.value::VARCHAR = '"best"') AS best,
               count(DISTINCT c.key[1]) FILTER (c.value::VARCHAR IN ('"best"', '"correct"')) AS correct
        FROM turns u, json_each(u.info, '$.choices') c
        WHERE u.gym = 'travel' AND (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase)
        GROUP BY u.traj_id
    ), counted AS (
        SELECT u.traj_id,
               count(*) FILTER (u.info->>'search' IN ('match', 'again')) AS valid_searches,
               count(*) FILTER (u.info->>'search' <> 'failed') AS searches,
               count(*) FILTER (u.info->>'utterance' = 'held') AS valid_actions,
               count(u.info->>'utterance') AS actions,
               count(*) FILTER (u.info->>'elicited' = 'active') AS active,
               count(*) FILTER (u.info->>'elicited' = 'passive') AS passive
        FROM turns u
        WHERE u.gym = 'travel' AND (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase)
        GROUP BY u.traj_id
    )
    SELECT t.run_id, t.policy, t.checkpoint, count(*) AS n, avg(t.score) AS score,
           avg(coalesce(c.best, 0) / s.aspects) AS best_exist, avg(coalesce(c.correct, 0) / s.aspects) AS correct_exist,
           avg(o.valid_searches / nullif(o.searches, 0)) AS valid_search, avg(o.valid_actions / nullif(o.actions, 0)) AS valid_action,
           avg((o.active + o.passive) / nullif(s.preferences, 0)) AS elicited,
           avg(o.active / nullif(s.preferences, 0)) AS active, avg(o.passive / nullif(s.preferences, 0)) AS passive
    FROM trajectories t
    LEFT JOIN size s ON s.run_id = t.run_id AND s.task_id = t.task_id AND s.version = t.task_version
    LEFT JOIN choice c ON c.traj_id = t.traj_id LEFT JOIN counted o ON o.traj_id = t.traj_id
    WHERE t.gym = 'travel' AND t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.policy, t.checkpoint ORDER BY t.run_id, t.policy;

-- Details of wish conversations: the mean share of colours told, the shares answered before every colour was told and never
-- answered, and the success with all colours told and with fewer.
CREATE OR REPLACE MACRO wish_outcomes(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH ended AS (
        SELECT u.traj_id, arg_max((u.info->>'told')::DOUBLE / (u.info->>'wished')::DOUBLE, u.turn) AS told,
               count(*) FILTER (u.choice = 'answer' AND u.observation = 'done') > 0 AS answered
        FROM turns u
        WHERE u.gym = 'wish' AND (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase)
        GROUP BY u.traj_id
    )
    SELECT t.run_id, t.policy, t.checkpoint, t.stage, t.step, count(*) AS n, avg(t.score) AS success,
           avg(coalesce(e.told, 0)) AS told, avg((e.answered AND e.told < 1)::INT) AS answered_early,
           avg((NOT coalesce(e.answered, false))::INT) AS never_answered,
           avg(t.score) FILTER (e.told = 1) AS success_all_told, avg(t.score) FILTER (e.told < 1) AS success_part_told,
           avg(t.turns) AS turns
    FROM trajectories t LEFT JOIN ended e USING (traj_id)
    WHERE t.gym = 'wish' AND t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.policy, t.checkpoint, t.stage, t.step ORDER BY t.run_id, t.stage, t.step, t.policy;

-- Agreement of the two verdicts on tau conversations, per policy: whether the writes are the gold ones, and whether the
-- database equals the gold result. An unfinished conversation has neither. apart: the conversations with different verdicts,
-- for `userrl show`.
CREATE OR REPLACE MACRO tau_verdicts(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH ended AS (
        SELECT u.traj_id, (u.info->>'writes_right')::BOOLEAN AS writes_right,
               (u.info->>'database_right')::BOOLEAN AS database_right, (u.info->>'outputs_missing')::INT > 0 AS untold
        FROM turns u
        WHERE u.gym = 'tau' AND u.info->>'writes_right' IS NOT NULL
              AND (run IS NULL OR u.run_id = run) AND (in_phase IS NULL OR u.phase = in_phase)
    )
    SELECT t.run_id, t.policy, t.checkpoint, count(*) AS n, avg(t.score) AS score,
           count(*) FILTER (e.writes_right) AS writes_right, count(*) FILTER (e.database_right) AS database_right,
           count(*) FILTER (e.untold) AS outputs_missing,
           count(*) FILTER (e.writes_right <> e.database_right) AS disagreements,
           list(t.traj_id ORDER BY t.traj_id) FILTER (e.writes_right <> e.database_right) AS apart
    FROM trajectories t LEFT JOIN ended e USING (traj_id)
    WHERE t.gym = 'tau' AND t.admitted AND (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
    GROUP BY t.run_id, t.policy, t.checkpoint ORDER BY t.run_id, t.policy;
