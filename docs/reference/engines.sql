-- Five questions to the exported rows, in SQL that DuckDB, Polars, ClickHouse and Spark understand. Polars takes `hidden` from
-- tests/warehouse/engines.py, since its SQL has no regexp_replace.
-- turns, trajectories, events and runs are the exported tables, as docs/reference/engines.md reads them. The other names are views.

-- name: hidden
-- Conversations that a rewind hides, and rejected ones that were played again (replay). A rewind with scope "stage" hides those of
-- its stage. Others also hide those of later stages. A stage rl-2-a is of branch a, and a rewind of it leaves the other branches alone.
SELECT DISTINCT t.traj_id
FROM (SELECT traj_id, run_id, incarnation, stage, phase, step FROM turns
      UNION ALL SELECT traj_id, run_id, incarnation, stage, phase, step FROM trajectories) t
JOIN events e ON e.run_id = t.run_id
WHERE e.kind = 'rewind' AND t.incarnation < e.incarnation
  AND CASE WHEN e.step IS NULL THEN t.stage = e.stage
           ELSE t.step > e.step AND t.phase IN ('train', 'baseline', 'validate') AND coalesce(e.stage, '') NOT LIKE 'sft%'
                AND t.stage LIKE concat('%', regexp_replace(coalesce(e.stage, ''), '^rl-[0-9]+', ''))
                AND (t.stage = e.stage OR coalesce(e.fields, '') NOT LIKE '%"scope":"stage"%') END
UNION DISTINCT
SELECT t.traj_id FROM trajectories t JOIN events e ON e.run_id = t.run_id
WHERE e.kind = 'replay' AND t.incarnation < e.incarnation AND t.stage = e.stage AND NOT t.admitted

-- name: shown_turns
SELECT * FROM turns WHERE traj_id NOT IN (SELECT traj_id FROM hidden)

-- name: shown_trajectories
SELECT * FROM trajectories WHERE traj_id NOT IN (SELECT traj_id FROM hidden)

-- name: learning_curve
SELECT run_id, stage, phase, step, sum(CASE WHEN admitted THEN 1 ELSE 0 END) AS trajectories,
       sum(CASE WHEN admitted THEN 0 ELSE 1 END) AS rejected, avg(CASE WHEN admitted THEN score END) AS score,
       avg(CASE WHEN admitted THEN return_sum END) AS return_sum, avg(CASE WHEN admitted THEN turns END) AS turns,
       avg(CASE WHEN admitted THEN CASE WHEN stop_reason = 'success' THEN 1 ELSE 0 END END) AS success
FROM shown_trajectories GROUP BY run_id, stage, phase, step

-- name: pass_hat_k
WITH tried AS (
    SELECT run_id, policy, checkpoint, gym, split, task_id, count(*) AS n,
           sum(CASE WHEN stop_reason = 'success' THEN 1 ELSE 0 END) AS c
    FROM shown_trajectories WHERE admitted AND phase = 'evaluate' GROUP BY run_id, policy, checkpoint, gym, split, task_id
), chances AS (
    SELECT run_id, policy, checkpoint, gym, split, 1 AS k, CAST(c AS DOUBLE) / n AS chance FROM tried
    UNION ALL
    SELECT run_id, policy, checkpoint, gym, split, 2 AS k, CAST(c AS DOUBLE) / n * (c - 1) / (n - 1) AS chance FROM tried WHERE n >= 2
    UNION ALL
    SELECT run_id, policy, checkpoint, gym, split, 3 AS k, CAST(c AS DOUBLE) / n * (c - 1) / (n - 1) * (c - 2) / (n - 2) AS chance
    FROM tried WHERE n >= 3
)
SELECT run_id, policy, checkpoint, gym, split, k, count(*) AS tasks, avg(chance) AS pass_hat_k
FROM chances GROUP BY run_id, policy, checkpoint, gym, split, k

-- name: group_statistics
WITH scored AS (
    SELECT t.run_id, t.phase, t.stage, t.step, t.gym, t.group_id,
           CASE WHEN NOT t.admitted THEN NULL WHEN r.score = 'sum' THEN t.return_sum
                WHEN r.score = 'mean' THEN t.return_sum / t.turns ELSE t.score_r2g END AS s
    FROM shown_trajectories t LEFT JOIN runs r ON r.run_id = t.run_id WHERE t.phase = 'train'
), grouped AS (
    SELECT run_id, phase, stage, step, gym, group_id, count(s) AS n, avg(s) AS mean,
           CASE WHEN count(s) >= 2 THEN stddev_samp(s) * sqrt(CAST(count(s) - 1 AS DOUBLE) / count(s)) END AS std
    FROM scored GROUP BY run_id, phase, stage, step, gym, group_id
)
SELECT run_id, stage, step, count(*) AS groups, sum(CASE WHEN n < 2 THEN 1 ELSE 0 END) AS too_small,
       sum(CASE WHEN n >= 2 AND std < 1e-6 AND mean > 0 THEN 1 ELSE 0 END) AS all_good,
       sum(CASE WHEN n >= 2 AND std < 1e-6 AND mean <= 0 THEN 1 ELSE 0 END) AS all_bad,
       sum(CASE WHEN n >= 2 AND std >= 1e-6 THEN 1 ELSE 0 END) AS mixed,
       avg(CASE WHEN n >= 2 THEN mean END) AS mean_score, avg(CASE WHEN n >= 2 THEN std END) AS mean_std
FROM grouped GROUP BY run_id, stage, step

-- name: effective_turns
WITH last_ones AS (
    SELECT traj_id, CASE WHEN count(reward) = count(*) THEN coalesce(max(CASE WHEN reward <> 0 THEN turn END), 0) END AS last
    FROM shown_turns WHERE phase = 'evaluate' GROUP BY traj_id
)
SELECT t.run_id, t.policy, t.checkpoint, t.gym, count(*) AS n,
       avg(CASE WHEN l.traj_id IS NULL THEN 0 ELSE l.last END) AS effective_turns
FROM shown_trajectories t LEFT JOIN last_ones l ON l.traj_id = t.traj_id
WHERE t.admitted AND t.phase = 'evaluate' GROUP BY t.run_id, t.policy, t.checkpoint, t.gym

-- name: rewinds_hidden
SELECT run_id, phase, stage, step, count(*) AS turns, count(DISTINCT traj_id) AS trajectories, sum(reward) AS reward
FROM shown_turns GROUP BY run_id, phase, stage, step
