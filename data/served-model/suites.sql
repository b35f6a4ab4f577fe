WITH calls AS (
  SELECT run_id, gym, count(*) AS calls, count(error) AS failed, sum(prompt_tokens) AS tokens_read,
         sum(completion_tokens) AS tokens_written, sum(price) AS dollars
  FROM model_calls GROUP BY ALL
)
SELECT replace(
         regexp_extract(run_id, '^evaluate-(agentgym-rl|tarl-retail|userbench-single-ours|userrl-table3-ours)', 1),
         '-ours', ':ours'
       ) AS suite,
       regexp_extract(policy, '[^/]+$') AS model,
       gym, count(*) AS conversations, sum(turns) AS turns,
       count(*) FILTER (flags & 1 > 0) AS "unreadable call", count(*) FILTER (flags & 8 > 0) AS "cut reply",
       count(*) FILTER (NOT admitted) AS rejected, coalesce(round(avg(score), 2)::VARCHAR, 'null') AS score,
       any_value(calls) AS calls, any_value(failed) AS failed, any_value(tokens_read) AS "tokens read",
       any_value(tokens_written) AS "tokens written", coalesce(any_value(dollars)::VARCHAR, 'null') AS dollars,
       round(max(logged_at) - min(started_at))::INT AS seconds
FROM trajectories LEFT JOIN calls USING (run_id, gym) GROUP BY run_id, policy, gym ORDER BY suite, model, gym
