-- Re-scoring: the trajectory scores and advantages of a past run under other settings. The formulas are those of
-- userrl_core.rewards (UserRL section 3) and agree with them to 1e-6. Tokens of a turn are its completion_tokens, one where
-- none were counted.

-- Per turn: the input reward of credit assignment. It is the gym's reward or, with_judged, the turn judge's; null without a
-- mark.
CREATE OR REPLACE MACRO rewarded_turns(run, with_judged := false, in_phase := 'train') AS TABLE
    SELECT traj_id, turn, reward, completion_tokens FROM turns WHERE NOT with_judged AND run_id = run AND phase = in_phase
    UNION ALL
    SELECT u.traj_id, u.turn, j.reward, u.completion_tokens FROM turns u LEFT JOIN judgements j USING (traj_id, turn)
    WHERE with_judged AND u.run_id = run AND u.phase = in_phase;

-- Per trajectory: its score, the mean and deviation of its group, z, and whether it carries a signal.
CREATE OR REPLACE MACRO rescore_trajectories(run, with_score := 'r2g', with_gamma := 0.8, with_ddof := 0, with_rounding := 'none',
                                             with_judged := false, in_phase := 'train') AS TABLE
    WITH summed AS (
        SELECT u.traj_id, count(u.reward) = count(*) AS whole,
               sum(u.reward * CASE WHEN with_score = 'r2g' THEN pow(with_gamma::DOUBLE, u.turn - 1)
                                   WHEN with_score IN ('sum', 'mean') THEN 1.0::DOUBLE
                                   ELSE error('Unknown score; use sum, mean or r2g.')::DOUBLE END) AS total, count(*) AS turns
        FROM rewarded_turns(run, with_judged := with_judged, in_phase := in_phase) u GROUP BY u.traj_id
    ), member AS (
        SELECT t.traj_id, t.stage, t.step, t.gym, t.group_id, t.admitted AND m.whole AS ok,
               CASE WHEN with_score = 'mean' THEN m.total / m.turns ELSE m.total END AS exact,
               -- printf rounds the exact value, as Python does; round() scales first.
               CASE WHEN NOT ok THEN NULL WHEN with_score = 'mean' AND with_rounding = 'released'
                    THEN printf('%.4f', exact)::DOUBLE ELSE exact END AS s
        FROM trajectories t JOIN summed m USING (traj_id)
        WHERE t.run_id = run AND t.phase = in_phase
    ), grouped AS (
        SELECT *, CASE WHEN with_ddof = 0 THEN population ELSE sample END AS std FROM (
            SELECT stage, step, gym, group_id, count(s) AS n, avg(s) AS mean,
                   stddev_pop(s) AS population, stddev_samp(s) AS sample
            FROM member GROUP BY stage, step, gym, group_id)
    )
    SELECT a.traj_id, a.stage, a.step, a.gym, a.group_id, a.ok AS admitted, a.s AS score, g.mean, coalesce(g.std, 0) AS std,
           coalesce(a.ok AND g.n >= 2 AND g.std >= 1e-6, false) AS signal,
           CASE WHEN signal THEN (a.s - g.mean) / (g.std + 1e-6) ELSE 0.0 END AS z
    FROM member a JOIN grouped g
      ON g.stage = a.stage AND g.step = a.step AND g.gym = a.gym AND g.group_id = a.group_id;

-- Shaped credit of every turn. r2g is gamma^-t times a suffix sum, so one window suffices for all gammas but 0.
CREATE OR REPLACE MACRO shaped_turns(run, with_shaping := 'equalized', with_gamma := 0.8, with_k := 2.0, with_rounding := 'none',
                                     with_judged := false, in_phase := 'train') AS TABLE
    SELECT u.traj_id, u.turn, u.reward, CASE WHEN u.completion_tokens > 0 THEN u.completion_tokens ELSE 1 END AS tokens,
           CASE with_shaping
               WHEN 'naive' THEN u.reward
               WHEN 'equalized' THEN 1.0::DOUBLE
               WHEN 'r2g' THEN CASE WHEN with_gamma = 0 THEN u.reward ELSE
                   sum(u.reward * pow(with_gamma::DOUBLE, u.turn)) OVER (PARTITION BY u.traj_id ORDER BY u.turn DESC)
                   / pow(with_gamma::DOUBLE, u.turn) END
               WHEN 'em' THEN CASE WHEN u.reward < 0 OR u.reward > 1
                   THEN error('Shaping em needs rewards in [0, 1]; use shaping equalized.')::DOUBLE
                   WHEN with_rounding = 'released'
                   THEN printf('%.4f', 0.5 + 0.5 * (1 - exp(-with_k * u.reward)) / (1 - exp(-with_k)))::DOUBLE
                   ELSE 0.5 + 0.5 * (1 - exp(-with_k * u.reward)) / (1 - exp(-with_k)) END
               ELSE error('SQL has no shaping ' || with_shaping || '; use naive, equalized, r2g or em. What a run trained on under a '
                          || 'package''s rule lies in the table credits.')::DOUBLE
           END AS shaped
    FROM rewarded_turns(run, with_judged := with_judged, in_phase := in_phase) u;

-- Per turn: shaped credit and advantage under the given settings, with the trajectory's score and z.
CREATE OR REPLACE MACRO rescore(run, with_shaping := 'equalized', with_score := 'r2g', with_gamma := 0.8, with_k := 2.0,
                                with_form := 'released', with_ddof := 0, with_rounding := 'none', with_judged := false,
                                in_phase := 'train') AS TABLE
    WITH scored AS (
        FROM rescore_trajectories(run, with_score := with_score, with_gamma := with_gamma, with_ddof := with_ddof,
                                  with_rounding := with_rounding, with_judged := with_judged, in_phase := in_phase)
    ), credit AS (
        FROM shaped_turns(run, with_shaping := with_shaping, with_gamma := with_gamma, with_k := with_k, with_rounding := with_rounding,
                          with_judged := with_judged, in_phase := in_phase)
    ), spread AS (
        SELECT traj_id, sum(shaped * tokens) AS total, sum(tokens) FILTER (shaped <> 0) AS counted, min(shaped) AS lowest,
               sum(shaped * tokens) / sum(tokens) AS average
        FROM credit WHERE with_shaping <> 'equalized' AND with_form <> 'paper' GROUP BY traj_id
    ), centre AS (
        SELECT s.stage, s.step, s.gym, s.group_id, avg((p.average - s.mean) / (s.std + 1e-6)) AS offset
        FROM scored s JOIN spread p USING (traj_id) WHERE s.signal AND with_form = 'centred' GROUP BY ALL
    )
    SELECT s.traj_id, c.turn, c.reward, CASE WHEN s.admitted THEN c.shaped ELSE 0.0 END AS shaped, s.score, s.z,
           CASE WHEN NOT s.signal THEN 0.0
                WHEN with_shaping = 'equalized' THEN s.z
                WHEN with_form = 'paper' THEN (c.shaped - s.mean) / (s.std + 1e-6)
                WHEN with_form = 'centred' THEN (c.shaped - s.mean) / (s.std + 1e-6) - o.offset
                WHEN with_form <> 'released' THEN error('Unknown form; use released, paper or centred.')::DOUBLE
                WHEN p.lowest < 0 THEN error('Form released inverts the sign of negative credit; use form paper.')::DOUBLE
                WHEN p.total = 0 THEN 0.0
                ELSE c.shaped * s.z * p.counted / p.total
           END AS advantage
    FROM credit c JOIN scored s USING (traj_id) LEFT JOIN spread p USING (traj_id)
         LEFT JOIN centre o ON o.stage = s.stage AND o.step = s.step AND o.gym = s.gym AND o.group_id = s.group_id;

-- Mean-advantage bias (push) of the trained advantages per step: how far they deviate from a mean of 0, within a group, and
-- within a group and turn number. A turn is weighted by its share of its trajectory's tokens. Also the share without any
-- gradient among trajectories below their group's mean. Agrees with userrl_core.rewards.bias to 1e-6.
CREATE OR REPLACE MACRO push(run, with_score := 'r2g', with_gamma := 0.8, with_ddof := 0, with_rounding := 'none') AS TABLE
    WITH scored AS (
        FROM rescore_trajectories(run, with_score := with_score, with_gamma := with_gamma, with_ddof := with_ddof,
                                  with_rounding := with_rounding)
    ), weighed AS (
        SELECT s.stage, s.step, s.gym, s.group_id, s.traj_id, u.turn, s.signal AND s.z < -1e-9 AS below, u.advantage,
               CASE WHEN u.completion_tokens > 0 THEN u.completion_tokens ELSE 1 END AS tokens,
               u.advantage * tokens / sum(tokens) OVER (PARTITION BY u.traj_id) AS pushed
        FROM turns u JOIN scored s USING (traj_id) WHERE u.run_id = run AND u.phase = 'train' AND u.advantage IS NOT NULL
    ), of_turn AS (
        SELECT stage, step, gym, group_id, turn, sum(pushed) AS net, sum(abs(pushed)) AS mass
        FROM weighed GROUP BY ALL
    ), of_group AS (
        SELECT stage, step, gym, group_id, abs(sum(net)) AS net, sum(abs(net)) AS by_turn, sum(mass) AS mass
        FROM of_turn GROUP BY ALL
    ), of_step AS (
        SELECT stage, step, coalesce(sum(net) / nullif(sum(mass), 0), 0) AS push_group,
               coalesce(sum(by_turn) / nullif(sum(mass), 0), 0) AS push_turn
        FROM of_group GROUP BY ALL
    ), lower AS (
        SELECT stage, step, traj_id, bool_and(advantage = 0) AS silent FROM weighed WHERE below GROUP BY ALL
    )
    SELECT o.stage, o.step, o.push_group, o.push_turn, coalesce(avg(l.silent::INTEGER), 0) AS silent_below,
           count(l.traj_id) AS below
    FROM of_step o LEFT JOIN lower l ON l.stage = o.stage AND l.step = o.step
    GROUP BY o.stage, o.step, o.push_group, o.push_turn ORDER BY o.step, o.stage;
