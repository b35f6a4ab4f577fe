-- Marks of a turn judge (TARL 3.2), compared with the rule judge.

-- Turns with different marks of the judge and the rule judge, with their text, and the turn that each of the two marked -1
-- (null: none).
CREATE OR REPLACE MACRO judge_disagreements(run := NULL) AS TABLE
    WITH placed AS (
        SELECT j.*, max(turn) FILTER (score = -1) OVER of_one AS deviation_turn,
               max(turn) FILTER (rule_score = -1) OVER of_one AS rule_deviation_turn
        FROM judgements j WHERE run IS NULL OR j.run_id = run WINDOW of_one AS (PARTITION BY traj_id)
    )
    SELECT p.run_id, u.step, u.gym, u.task_id, p.traj_id, p.turn, p.judge, p.score, p.rule_score, p.deviation_turn,
           p.rule_deviation_turn, p.category, t.stop_reason, u.message, u.observation
    FROM placed p JOIN turns u USING (traj_id, turn) LEFT JOIN trajectories t ON t.traj_id = p.traj_id
    WHERE p.score IS DISTINCT FROM p.rule_score ORDER BY p.run_id, u.step, p.traj_id, p.turn;

-- Judged conversations per run, stage, step and gym: the number of each category, the share of turns with equal marks of judge
-- and rule judge (of judged turns), the mean judged score, and the judge's cost.
CREATE OR REPLACE MACRO judge_categories(run := NULL) AS TABLE
    WITH each AS (
        SELECT j.run_id, u.stage, u.step, u.gym, j.judge, j.traj_id, any_value(j.category) AS category,
               sum(j.reward) FILTER (j.score IS NOT NULL) AS judged_score, sum(j.price) AS price,
               count(j.score) AS marks, count(*) FILTER (j.score = j.rule_score) AS alike
        FROM judgements j JOIN turns u USING (traj_id, turn) WHERE run IS NULL OR j.run_id = run GROUP BY ALL
    )
    SELECT run_id, stage, step, gym, judge, count(*) AS conversations,
           count(*) FILTER (category = 'perfect') AS perfect, count(*) FILTER (category = 'good') AS good,
           count(*) FILTER (category = 'good_attempt') AS good_attempt, count(*) FILTER (category = 'failed') AS failed,
           count(*) FILTER (category = 'success_with_deviation') AS success_with_deviation,
           count(*) FILTER (category = 'unjudged') AS unjudged,
           avg(judged_score) AS judged_score, sum(alike) / nullif(sum(marks), 0) AS agreement, sum(price) AS price
    FROM each GROUP BY run_id, stage, step, gym, judge ORDER BY run_id, step, gym;
