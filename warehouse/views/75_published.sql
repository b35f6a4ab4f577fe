-- Evaluations next to the papers' tables, with the protocols of both.

-- The protocol of each evaluation, per run, policy, checkpoint and gym: the row of `protocols`. What an earlier version or another
-- tool played has user, horizon, attempts and temperature alone; its other settings are null, which means not recorded.
CREATE OR REPLACE MACRO evaluation_protocols(run := NULL, in_phase := 'evaluate') AS TABLE
    WITH played AS (
        SELECT t.run_id, t.policy, t.checkpoint, t.gym, CASE WHEN count(DISTINCT t.user_name) = 1 THEN any_value(t.user_name) END AS user_name,
               max(t.horizon)::VARCHAR AS turns, count(DISTINCT t.attempt)::VARCHAR AS tries,
               CASE WHEN starts_with(t.policy, 'scripted(') THEN 'scripted' ELSE any_value(r.recipe_json->'$.evaluate'->>'temperature') END AS warmth
        FROM trajectories t LEFT JOIN runs r USING (run_id)
        WHERE (run IS NULL OR t.run_id = run) AND (in_phase IS NULL OR t.phase = in_phase)
        GROUP BY t.run_id, t.policy, t.checkpoint, t.gym
    )
    SELECT p.run_id, p.policy, p.checkpoint, p.gym, s.protocol_hash IS NOT NULL AS recorded,
           s.tasks, s.task_versions, coalesce(s.user_model, p.user_name) AS user_model, s.user_prompts, s.user_behaviour, s.judge, s.gym_settings,
           coalesce(s.horizon, p.turns) AS horizon, s.agent_prompt, s.agent_tool, coalesce(s.temperature, p.warmth) AS temperature,
           s.user_sampling, s.max_tokens, s.context_limit, s.format_errors, s.top_p, coalesce(s.attempts, p.tries) AS attempts, s.protocol_hash
    FROM played p LEFT JOIN protocols s
      ON s.run_id = p.run_id AND s.policy = p.policy AND s.checkpoint IS NOT DISTINCT FROM p.checkpoint AND s.gym = p.gym AND in_phase = 'evaluate'
    ORDER BY p.run_id, p.policy, p.gym;

-- evaluation_protocols with a row for every setting: its value (null: not known), its rank and why it matters.
CREATE OR REPLACE MACRO protocol_settings(run := NULL) AS TABLE
    SELECT l.run_id, l.policy, l.checkpoint, l.gym, s.rank, s.setting, l.pair.value AS value, s.matters
    FROM (SELECT run_id, policy, checkpoint, gym, unnest([
            {setting: 'tasks', value: tasks}, {setting: 'task_versions', value: task_versions},
            {setting: 'user_model', value: user_model}, {setting: 'user_prompts', value: user_prompts},
            {setting: 'user_behaviour', value: user_behaviour}, {setting: 'judge', value: judge},
            {setting: 'gym_settings', value: gym_settings}, {setting: 'horizon', value: horizon},
            {setting: 'agent_prompt', value: agent_prompt}, {setting: 'agent_tool', value: agent_tool},
            {setting: 'temperature', value: temperature}, {setting: 'user_sampling', value: user_sampling},
            {setting: 'max_tokens', value: max_tokens}, {setting: 'context_limit', value: context_limit},
            {setting: 'format_errors', value: format_errors}, {setting: 'top_p', value: top_p},
            {setting: 'attempts', value: attempts}]) AS pair FROM evaluation_protocols(run := run)) l
         JOIN reference.setting_ranks s ON s.setting = l.pair.setting
    ORDER BY l.run_id, l.policy, l.gym, s.rank;

-- The papers' protocols with a row for every setting: the released code's, or the paper's where it has none. null: not stated.
CREATE OR REPLACE MACRO published_protocols() AS TABLE
    SELECT l.published_in, l.gym, s.rank, s.setting, l.pair.value AS value
    FROM (SELECT published_in, gym, unnest([
            {setting: 'tasks', value: tasks::VARCHAR}, {setting: 'task_versions', value: task_versions::VARCHAR},
            {setting: 'user_model', value: user_model::VARCHAR}, {setting: 'user_prompts', value: user_prompts::VARCHAR},
            {setting: 'user_behaviour', value: user_behaviour::VARCHAR}, {setting: 'judge', value: judge::VARCHAR},
            {setting: 'gym_settings', value: gym_settings::VARCHAR}, {setting: 'horizon', value: horizon::VARCHAR},
            {setting: 'agent_prompt', value: agent_prompt::VARCHAR}, {setting: 'agent_tool', value: agent_tool::VARCHAR},
            {setting: 'temperature', value: temperature::VARCHAR}, {setting: 'user_sampling', value: user_sampling::VARCHAR},
            {setting: 'max_tokens', value: max_tokens::VARCHAR}, {setting: 'context_limit', value: context_limit::VARCHAR},
            {setting: 'format_errors', value: format_errors::VARCHAR}, {setting: 'top_p', value: top_p::VARCHAR},
            {setting: 'attempts', value: attempts::VARCHAR}]) AS pair FROM reference.protocols) l
         JOIN reference.setting_ranks s ON s.setting = l.pair.setting
    ORDER BY l.published_in, l.gym, s.rank;

-- The scores of the papers' tables in one form, as shares: UserRL 3, UserBench 3 and 4, TARL 1, 2, 6 and 7, AgentGym-RL's overall and
-- subtask tables. subset: a category of the gym's tasks; '' for all of them.
CREATE OR REPLACE MACRO published_scores() AS TABLE
    SELECT 'UserRL table 3' AS published_in, section, model, turn_shaping, trajectory_score, gym, '' AS subset, 'score' AS metric, score AS published
    FROM reference.userrl_table3
    UNION ALL
    SELECT CASE setting WHEN 'single_choice' THEN 'UserBench table 3' ELSE 'UserBench table 4' END, 'served', model, NULL, NULL, 'travel', '', m.metric, m.value
    FROM (SELECT setting, model, unnest([{metric: 'score', value: score}, {metric: 'best_exist', value: best_exist_rate},
                 {metric: 'correct_exist', value: correct_exist_rate}, {metric: 'valid_search', value: valid_search_pct / 100},
                 {metric: 'valid_action', value: valid_action_pct / 100}, {metric: 'elicited', value: preference_elicited_pct / 100},
                 {metric: 'active', value: active_pct / 100}, {metric: 'passive', value: passive_pct / 100}]) AS m
          FROM reference.userbench_tables3_4)
    UNION ALL
    SELECT 'TARL tables ' || tables || ', ' || domain, CASE algorithm WHEN 'none' THEN 'served' ELSE 'trained' END, model, NULL, NULL, 'tau', '',
           'pass^' || m.k, m.share / 100
    FROM (SELECT '1 and 2' AS tables, domain, algorithm, agent || CASE algorithm WHEN 'none' THEN '' ELSE ' ' || algorithm END AS model,
                 unnest([{k: 1, share: pass_1}, {k: 2, share: pass_2}, {k: 3, share: pass_3}, {k: 4, share: pass_4}]) AS m
          FROM reference.tarl_tables WHERE "table" < 3
          UNION ALL
          SELECT '6 and 7', domain, algorithm, agent || CASE algorithm WHEN 'none' THEN '' ELSE ' ' || algorithm END || ' (table ' || "table" || coalesce(', n ' || n, '') || ')',
                 unnest([{k: 1, share: pass_1}, {k: 2, share: pass_2}, {k: 3, share: pass_3}, {k: 4, share: pass_4}])
          FROM reference.tarl_tables_6_7_output_check)
    UNION ALL
    SELECT 'AgentGym-RL, ' || gym, CASE WHEN contains(model, 'RL-') OR starts_with(model, 'Scaling') THEN 'trained' ELSE 'served' END, model, NULL, NULL, gym,
           subset, 'score', score / 100
    FROM (SELECT CASE environment WHEN 'deepsearch' THEN 'searchqa' ELSE environment END AS gym, '' AS subset, model, overall AS score
          FROM reference.agentgym_rl_overall
          UNION ALL
          SELECT CASE environment WHEN 'deepsearch' THEN 'searchqa' ELSE environment END,
                 CASE WHEN starts_with(subtask, 'depth') THEN replace(subtask, 'depth', 'depth-') ELSE subtask END, model, score
          FROM reference.agentgym_rl_subtasks WHERE subtask <> 'overall');

-- The scores of a run's evaluations in the form of published_scores.
CREATE OR REPLACE MACRO comparable_scores(run := NULL) AS TABLE
    SELECT g.run_id, g.policy, g.checkpoint, g.gym, '' AS subset, 'score' AS metric, g.n, g.score AS value, g.standard_error FROM gym_scores(run := run) g
    UNION ALL
    SELECT run_id, policy, checkpoint, gym, tier, 'score', n, score, standard_error FROM tier_scores(run := run) WHERE tier <> ''
    UNION ALL
    SELECT run_id, policy, checkpoint, 'micro_average', '', 'score', n, micro_average, NULL FROM micro_average(run := run)
    UNION ALL
    SELECT run_id, policy, checkpoint, gym, '', 'pass^' || k, tasks, pass_hat_k, NULL FROM pass_hat_k(run := run)
    UNION ALL
    SELECT run_id, policy, checkpoint, 'travel', '', m.metric, n, m.value, NULL
    FROM (SELECT run_id, policy, checkpoint, n, unnest([{metric: 'best_exist', value: best_exist}, {metric: 'correct_exist', value: correct_exist},
                 {metric: 'valid_search', value: valid_search}, {metric: 'valid_action', value: valid_action}, {metric: 'elicited', value: elicited},
                 {metric: 'active', value: active}, {metric: 'passive', value: passive}]) AS m FROM userbench(run := run));

-- A run's evaluation next to the papers' tables, with what differs between the protocols. A run of a suite meets the tables that the suite
-- plays, another run UserRL table 3 and AgentGym-RL's. in_table, of_model and every choose other rows. why_not names each setting that
-- differs, and each that is not known on both sides. Only without any, the difference is computed and comparable true.
CREATE OR REPLACE MACRO beside_published(run := NULL, of_model := NULL, every := false, in_table := NULL) AS TABLE
    WITH played AS (
        SELECT s.*, g.rejected FROM evaluation_setting(run := run) s
               LEFT JOIN (SELECT run_id, policy, checkpoint, gym, sum(rejected)::BIGINT AS rejected FROM gym_scores(run := run) GROUP BY ALL) g
                 ON g.run_id = s.run_id AND g.policy = s.policy AND g.checkpoint IS NOT DISTINCT FROM s.checkpoint AND g.gym = s.gym
    ), tables AS (
        SELECT DISTINCT published_in, gym FROM published_scores() WHERE gym <> 'micro_average' AND (in_table IS NULL OR starts_with(published_in, in_table))
    ), met AS (
        SELECT s.*, t.published_in, g.test AS published_tasks, starts_with(t.published_in, 'UserRL') AS whole_paper
        FROM played s JOIN tables t USING (gym) LEFT JOIN reference.userrl_table2_gyms g USING (gym)
        WHERE in_table IS NOT NULL OR CASE
            WHEN s.suite = '' THEN starts_with(t.published_in, 'UserRL') OR starts_with(t.published_in, 'AgentGym')
            WHEN starts_with(s.suite, 'userbench-single') THEN t.published_in = 'UserBench table 3'
            WHEN starts_with(s.suite, 'userbench-multi') THEN t.published_in = 'UserBench table 4'
            WHEN starts_with(s.suite, 'tarl-') THEN t.published_in = 'TARL tables ' || CASE WHEN contains(s.suite, 'outputs') THEN '6 and 7' ELSE '1 and 2' END
                || ', ' || regexp_extract(s.suite, 'tarl-([a-z]+)', 1)
            WHEN starts_with(s.suite, 'agentgym') THEN starts_with(t.published_in, 'AgentGym')
            ELSE starts_with(t.published_in, 'UserRL') OR starts_with(t.published_in, 'AgentGym') END
    ), against AS (
        SELECT m.run_id, m.policy, m.checkpoint, m.gym, m.published_in, o.rank, o.setting, o.value AS ours, p.value AS theirs
        FROM met m
             JOIN protocol_settings(run := run) o ON o.run_id = m.run_id AND o.policy = m.policy AND o.checkpoint IS NOT DISTINCT FROM m.checkpoint AND o.gym = m.gym
             LEFT JOIN published_protocols() p ON p.published_in = m.published_in AND p.gym = m.gym AND p.setting = o.setting
    ), verdict AS (
        SELECT run_id, policy, checkpoint, gym, published_in,
               string_agg(CASE setting WHEN 'gym_settings' THEN 'settings of the gym' WHEN 'user_behaviour' THEN 'behaviour of the user'
                               WHEN 'user_sampling' THEN 'sampling of the user' WHEN 'task_versions' THEN 'versions of the tasks'
                               WHEN 'tasks' THEN 'other tasks of this number'
                               ELSE replace(setting, '_', ' ') || ' ' || ours || ' (published: ' || theirs || ')' END, '; ' ORDER BY rank)
                   FILTER (ours <> theirs AND CASE setting
                       WHEN 'tasks' THEN array_slice(split(ours, ' '), 1, 3) = array_slice(split(theirs, ' '), 1, 3)
                       WHEN 'user_model' THEN contains(ours, 'own server') OR starts_with(ours, theirs || '-20')
                       ELSE setting NOT IN ('horizon', 'attempts') END) AS differs,
               count(*) FILTER (ours <> theirs) AS differing,
               string_agg(replace(setting, '_', ' '), ', ' ORDER BY rank) FILTER (ours IS NULL OR theirs IS NULL) AS unknown
        FROM against GROUP BY ALL
    ), published AS (
        SELECT published_in, gym, max(value) FILTER (setting = 'tasks') AS tasks, max(value) FILTER (setting = 'user_model') AS user_model,
               max(value) FILTER (setting = 'horizon') AS horizon, max(value) FILTER (setting = 'attempts') AS attempts
        FROM published_protocols() GROUP BY ALL
    ), setting AS (
        SELECT m.*, v.differing, v.unknown, p.tasks AS published_version,
               concat_ws('; ',
                   CASE WHEN m.data <> split_part(p.tasks, ' ', 1) THEN 'tasks are ' || m.data END,
                   CASE WHEN m.split <> 'test' THEN 'split ' || m.split END,
                   CASE WHEN m.tasks <> TRY_CAST(split_part(p.tasks, ' ', 3) AS BIGINT) THEN m.tasks || ' of ' || split_part(p.tasks, ' ', 3) || ' test tasks' END,
                   CASE WHEN p.user_model <> 'none' AND m.user_model <> p.user_model AND NOT starts_with(m.user_model, p.user_model || '-20')
                        THEN 'user ' || m.user_model END,
                   CASE WHEN m.horizon::VARCHAR <> p.horizon THEN 'horizon ' || m.horizon END,
                   CASE WHEN m.attempts::VARCHAR <> p.attempts THEN m.attempts || ' attempts' END,
                   CASE WHEN m.rejected > 0 THEN m.rejected || ' conversations without a score' END,
                   v.differs) AS differs
        FROM met m LEFT JOIN published p USING (published_in, gym)
             LEFT JOIN verdict v ON v.run_id = m.run_id AND v.policy = m.policy AND v.checkpoint IS NOT DISTINCT FROM m.checkpoint AND v.gym = m.gym
                  AND v.published_in = m.published_in
    ), whole AS (
        SELECT run_id, any_value(profile) AS profile, policy, checkpoint, published_in,
               string_agg(DISTINCT data, ', ' ORDER BY data) AS data, string_agg(DISTINCT user_model, ', ' ORDER BY user_model) AS user_model,
               max(horizon) AS horizon, max(attempts) AS attempts, left(md5(string_agg(benchmark_version, ',' ORDER BY gym)), 8) AS benchmark_version,
               count(published_tasks) || ' of ' || (SELECT count(*) FROM reference.userrl_table2_gyms) || ': '
                   || string_agg(gym, ', ' ORDER BY gym) AS gyms,
               concat_ws('; ',
                   CASE WHEN count(published_tasks) < (SELECT count(*) FROM reference.userrl_table2_gyms)
                        THEN count(published_tasks) || ' of the paper''s gyms' END,
                   nullif(string_agg(gym || ': ' || nullif(differs, ''), '; ' ORDER BY gym), '')) AS differs,
               nullif(string_agg(gym || ': ' || unknown, '; ' ORDER BY gym), '') AS unknown, sum(differing) AS differing
        FROM setting WHERE whole_paper GROUP BY run_id, policy, checkpoint, published_in
    ), ours AS (
        SELECT c.*, s.published_in, s.profile, s.data, s.user_model, s.horizon, s.attempts, s.gym AS gyms, s.benchmark_version, s.differs, s.unknown,
               s.differing, s.published_version
        FROM comparable_scores(run := run) c
             JOIN setting s ON s.run_id = c.run_id AND s.policy = c.policy AND s.checkpoint IS NOT DISTINCT FROM c.checkpoint AND s.gym = c.gym
        UNION ALL BY NAME
        SELECT c.*, w.* EXCLUDE (run_id, policy, checkpoint)
        FROM comparable_scores(run := run) c
             JOIN whole w ON w.run_id = c.run_id AND w.policy = c.policy AND w.checkpoint IS NOT DISTINCT FROM c.checkpoint
        WHERE c.gym = 'micro_average'
    ), joined AS (
        SELECT o.*, p.model AS published_model, p.section, p.turn_shaping, p.trajectory_score, p.published,
               o.differs = '' AND o.unknown IS NULL AND coalesce(o.differing, 0) = 0 AS comparable
        FROM ours o LEFT JOIN runs r USING (run_id)
             LEFT JOIN published_scores() p ON p.published_in = o.published_in AND p.gym = o.gym AND p.subset = o.subset AND p.metric = o.metric
              AND (of_model IS NULL OR p.model = of_model)
              AND (every OR p.section <> 'trained' OR p.turn_shaping IS NULL OR (p.turn_shaping = r.shaping AND p.trajectory_score = r.score))
        WHERE p.model IS NOT NULL OR (o.subset = '' AND o.metric = 'score')
    )
    SELECT j.run_id, r.name, j.policy, j.gym, j.subset, j.metric, j.n, j.value AS score, j.standard_error, j.published_in, j.published_model, j.section,
           j.turn_shaping, j.trajectory_score, j.published,
           CASE WHEN j.comparable THEN j.value - j.published END AS difference, j.comparable,
           concat_ws('; ', nullif(j.differs, ''), 'not known to agree: ' || j.unknown) AS why_not,
           j.profile, j.data, j.gyms, j.user_model, j.horizon, j.attempts, j.benchmark_version, j.published_version
    FROM joined j LEFT JOIN runs r USING (run_id)
    ORDER BY j.differs = '' DESC, j.run_id, j.policy, j.published_in, j.gym, j.subset, j.metric, j.published_model;
