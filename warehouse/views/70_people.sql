-- People as users and as agents (UserRL table 5), beside simulated ones on the same tasks.

-- Every conversation of a person: their part, the other side, how it went, how long the person took, and their rating.
CREATE OR REPLACE MACRO people(run := 'people') AS TABLE
    WITH told AS (
        SELECT (fields->>'traj_id')::BIGINT AS traj_id, max(fields->>'person') AS person, max((fields->>'rating')::INT) AS rating,
               max(fields->>'comment') AS comment
        FROM events WHERE kind = 'person' AND (run IS NULL OR run_id = run) GROUP BY ALL
    )
    SELECT t.traj_id, p.part, told.person, t.gym, t.task_id, CASE p.part WHEN 'agent' THEN t.user_name ELSE t.policy END AS other_side,
           t.score, t.turns, t.stop_reason, t.admitted, t.reject_reason,
           CASE p.part WHEN 'agent' THEN t.policy_seconds ELSE t.env_seconds END AS person_seconds, told.rating, told.comment,
           t.started_at
    FROM trajectories t
         JOIN (VALUES ('agent'), ('user')) p(part) ON CASE p.part WHEN 'agent' THEN t.policy ELSE t.user_name END = 'human'
         LEFT JOIN told USING (traj_id)
    WHERE (run IS NULL OR t.run_id = run) ORDER BY t.started_at, t.traj_id;

-- People beside simulated ones in the same part, against the same other side, on the same version of the same tasks: mean
-- scores over the tasks that both had, and the mean of the differences task by task with its standard error.
CREATE OR REPLACE MACRO people_beside_simulated(in_gym := NULL) AS TABLE
    WITH each AS (
        SELECT p.part, t.gym, t.task_id, t.task_version, t.score, p.who,
               p.other_side || coalesce(' ' || t.checkpoint, '') AS other_side
        FROM trajectories t, LATERAL (VALUES ('agent', t.policy, t.user_name), ('user', t.user_name, t.policy)) p(part, who, other_side)
        WHERE t.admitted AND t.score IS NOT NULL AND (in_gym IS NULL OR t.gym = in_gym)
    ), per_task AS (
        SELECT part, gym, task_id, task_version, other_side, who, avg(score) AS score FROM each GROUP BY ALL
    )
    SELECT h.part, h.gym, h.other_side, s.who AS simulated, count(*) AS tasks, avg(h.score) AS people, avg(s.score) AS simulated_score,
           avg(h.score - s.score) AS difference, stddev_samp(h.score - s.score) / sqrt(count(*)) AS standard_error
    FROM per_task h JOIN per_task s ON s.part = h.part AND s.gym = h.gym AND s.task_id = h.task_id
         AND s.task_version = h.task_version AND s.other_side = h.other_side
    WHERE h.who = 'human' AND s.who <> 'human'
    GROUP BY h.part, h.gym, h.other_side, s.who ORDER BY h.gym, h.part, h.other_side, simulated;
