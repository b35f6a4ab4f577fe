-- People as users and as agents (UserRL table 5), compared with simulated ones on the same tasks.

-- Conversations of people who consented to their use and did not withdraw. An export holds no other conversation of a person.
CREATE OR REPLACE MACRO consented() AS TABLE
    SELECT DISTINCT (e.fields->>'traj_id')::BIGINT AS traj_id
    FROM events e
         ANTI JOIN (SELECT run_id, fields->>'person' AS person FROM events WHERE kind = 'withdrawal') w
         ON w.run_id = e.run_id AND w.person = e.fields->>'person'
    WHERE e.kind = 'person' AND (e.fields->>'consent')::BOOLEAN AND e.fields->>'traj_id' IS NOT NULL;

-- Every conversation of a person: their part, the other side, the outcome, the person's time, and their rating.
CREATE OR REPLACE MACRO people(run := 'people') AS TABLE
    WITH told AS (
        SELECT (fields->>'traj_id')::BIGINT AS traj_id, max(fields->>'person') AS person, max((fields->>'rating')::INT) AS rating,
               max(fields->>'comment') AS comment, max(fields->>'study') AS study
        FROM events WHERE kind = 'person' AND (run IS NULL OR run_id = run) GROUP BY ALL
    )
    SELECT t.traj_id, p.part, told.person, t.gym, t.task_id, CASE p.part WHEN 'agent' THEN t.user_name ELSE t.policy END AS other_side,
           t.score, t.turns, t.stop_reason, t.admitted, t.reject_reason,
           CASE p.part WHEN 'agent' THEN t.policy_seconds ELSE t.env_seconds END AS person_seconds, told.rating, told.comment,
           t.started_at, t.traj_id IN (FROM consented()) AS consent, told.study
    FROM trajectories t
         JOIN (VALUES ('agent'), ('user')) p(part) ON CASE p.part WHEN 'agent' THEN t.policy ELSE t.user_name END = 'human'
         LEFT JOIN told USING (traj_id)
    WHERE (run IS NULL OR t.run_id = run) ORDER BY t.started_at, t.traj_id;

-- People and simulated ones, task by task, on the same version of the task: same part, same other side, same number of turns
-- allowed. The scores of all conversations of people, and of the simulated one, on it.
CREATE OR REPLACE MACRO people_by_task(in_gym := NULL) AS TABLE
    WITH of_people AS (
        SELECT DISTINCT gym, task_id FROM trajectories WHERE policy = 'human' OR user_name = 'human'
    ), each AS (
        SELECT p.part, t.gym, t.task_id, t.task_version, t.horizon, t.score, p.who,
               p.other_side || coalesce(' ' || t.checkpoint, '') AS other_side
        FROM (FROM trajectories SEMI JOIN of_people USING (gym, task_id)) t,
             LATERAL (VALUES ('agent', t.policy, t.user_name), ('user', t.user_name, t.policy)) p(part, who, other_side)
        WHERE t.admitted AND t.score IS NOT NULL AND (in_gym IS NULL OR t.gym = in_gym)
    ), per_task AS (
        SELECT part, gym, task_id, task_version, horizon, other_side, who, list(score) AS scores FROM each GROUP BY ALL
    )
    SELECT h.part, h.gym, h.other_side, s.who AS simulated, h.task_id, h.horizon, h.scores AS people_scores,
           s.scores AS simulated_scores
    FROM per_task h JOIN per_task s ON s.part = h.part AND s.gym = h.gym AND s.task_id = h.task_id
         AND s.task_version = h.task_version AND s.horizon = h.horizon AND s.other_side = h.other_side
    WHERE h.who = 'human' AND s.who <> 'human' ORDER BY h.gym, h.part, h.other_side, simulated, h.task_id;

-- People and simulated ones in the same part, with the same other side, on the same version of the same tasks. The mean scores
-- over the tasks that both played, and the mean of the differences by task with its standard error.
CREATE OR REPLACE MACRO people_beside_simulated(in_gym := NULL) AS TABLE
    WITH means AS (
        SELECT part, gym, other_side, simulated, list_avg(people_scores) AS person, list_avg(simulated_scores) AS machine
        FROM people_by_task(in_gym := in_gym)
    )
    SELECT part, gym, other_side, simulated, count(*) AS tasks, avg(person) AS people, avg(machine) AS simulated_score,
           avg(person - machine) AS difference, stddev_samp(person - machine) / sqrt(count(*)) AS standard_error
    FROM means GROUP BY ALL ORDER BY gym, part, other_side, simulated;
