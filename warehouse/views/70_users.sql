-- Users whose conversations were audited (`userrl audit user RUN`).

-- Audited users per run, phase, gym, policy and user: scores with and without the conversations in which the user made a certain
-- error, verdicts of failures, shares of facts told and parts settled, and the 19 numbers of the fingerprint. All means are over
-- a task's attempts, then over tasks; facts and parts are summed.
CREATE OR REPLACE MACRO user_report(run := NULL) AS TABLE
    WITH audited AS (
        SELECT t.run_id, t.phase, t.gym, t.policy, t.user_name, t.task_id, t.score, f.* EXCLUDE (run_id)
        FROM user_features f JOIN trajectories t USING (traj_id) WHERE run IS NULL OR t.run_id = run
    ), by_task AS (
        SELECT run_id, phase, gym, policy, user_name, task_id, count(*) AS n, avg(score) AS score,
               avg(score) FILTER (NOT user_error) AS score_without_user_errors,
               count(*) FILTER (verdict = 'user') AS failures_user, count(*) FILTER (verdict = 'agent') AS failures_agent,
               count(*) FILTER (verdict = 'both') AS failures_both,
               count(*) FILTER (verdict = 'neither seen') AS failures_neither_seen, any_value(suspect) AS suspect,
               sum(facts) AS facts, sum(told) AS told, sum(parts) AS parts, sum(settled) AS settled,
               avg(words_per_turn) AS words_per_turn, avg(short_utterance_rate) AS short_utterance_rate,
               avg(politeness) AS politeness, avg(formality) AS formality, avg(acknowledgment) AS acknowledgment,
               avg(verbosity_cv) AS verbosity_cv, avg(repetition) AS repetition,
               avg(identity_confusion) AS identity_confusion, avg(front_loading) AS front_loading,
               avg(identifiers_per_turn) AS identifiers_per_turn, avg(opening_length) AS opening_length,
               avg(uncertainty) AS uncertainty, avg(certainty) AS certainty, avg(pushback) AS pushback,
               avg(clarification_question) AS clarification_question, avg(info_seeking) AS info_seeking,
               avg(emotional_expression) AS emotional_expression, avg(accusatory) AS accusatory,
               avg(strategy_pivot) AS strategy_pivot
        FROM audited GROUP BY run_id, phase, gym, policy, user_name, task_id
    )
    SELECT run_id, phase, gym, policy, user_name, sum(n)::BIGINT AS conversations, count(*) AS tasks, avg(score) AS score,
           avg(score_without_user_errors) AS score_without_user_errors, sum(failures_user)::BIGINT AS failures_user,
           sum(failures_agent)::BIGINT AS failures_agent, sum(failures_both)::BIGINT AS failures_both,
           sum(failures_neither_seen)::BIGINT AS failures_neither_seen,
           count(*) FILTER (suspect <> '[]') AS suspect_tasks, sum(told) / nullif(sum(facts), 0) AS facts_told,
           sum(settled) / nullif(sum(parts), 0) AS parts_settled,
           avg(words_per_turn) AS words_per_turn, avg(short_utterance_rate) AS short_utterance_rate,
           avg(politeness) AS politeness, avg(formality) AS formality, avg(acknowledgment) AS acknowledgment,
           avg(verbosity_cv) AS verbosity_cv, avg(repetition) AS repetition,
           avg(identity_confusion) AS identity_confusion, avg(front_loading) AS front_loading,
           avg(identifiers_per_turn) AS identifiers_per_turn, avg(opening_length) AS opening_length,
           avg(uncertainty) AS uncertainty, avg(certainty) AS certainty, avg(pushback) AS pushback,
           avg(clarification_question) AS clarification_question, avg(info_seeking) AS info_seeking,
           avg(emotional_expression) AS emotional_expression, avg(accusatory) AS accusatory,
           avg(strategy_pivot) AS strategy_pivot
    FROM by_task GROUP BY run_id, phase, gym, policy, user_name ORDER BY run_id, phase, gym, policy, user_name;
