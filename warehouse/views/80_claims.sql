-- Claims: their registrations before an arm started, and the results of every run of an arm.

-- Registrations of claims, the oldest first: kind, hash of the file and of every arm's recipe, and why one is exploratory
-- ("" where it is the claim as it was first written down). code, measure: hashes of the code that trains and of the code that
-- measures; registration: over all three. Registrations up to 25 November 2026 lack these.
CREATE OR REPLACE MACRO claims(of_claim := NULL) AS TABLE
    SELECT fields->>'claim' AS claim, fields->>'of_kind' AS kind, fields->>'hash' AS hash, fields->>'exploratory' AS exploratory,
           fields->>'code' AS code, fields->>'measure' AS measure, fields->>'registration' AS registration,
           fields->>'text' AS text, make_timestamp((logged_at * 1e6)::BIGINT) AS registered, fields->'values' AS claim_json
    FROM events WHERE events.kind = 'claim' AND (of_claim IS NULL OR fields->>'claim' = of_claim)
    ORDER BY claim, logged_at;

-- One row per claim, hash, arm and seed. code: hash of the code that trained it, null for runs that noted none. score: mean test
-- score of the last three evaluations within the last fifth of the budget. best: of the checkpoint chosen by validation. early: the
-- validation nearest to a sixth of the budget. cpu_seconds: of training until validation first reached the claim's target. tokens,
-- updates: of training until the last step after which validation stays at or above the target (held_step). All of training counts
-- without a target or success. time_weighted: of the last step. cold_start: hash of RL's initial weights. ending, forgot: as in
-- run_endings. state: started, ended or crashed.
CREATE OR REPLACE MACRO claim_arms(of_claim := NULL) AS TABLE
    WITH asked AS (
        SELECT fields->>'claim' AS claim, fields->>'hash' AS hash, fields->>'arm' AS arm, (fields->>'seed')::BIGINT AS seed,
               fields->>'run' AS run_id, fields->>'exploratory' AS exploratory, fields->>'state' AS state,
               (fields->>'target')::DOUBLE AS target, fields->>'code' AS code
        FROM events WHERE kind = 'claim_arm' AND (of_claim IS NULL OR fields->>'claim' = of_claim)
        QUALIFY row_number() OVER (PARTITION BY claim, hash, arm, seed ORDER BY incarnation DESC, seq DESC) = 1
    ), own AS (SELECT DISTINCT run_id, target FROM asked
    ), played AS (
        SELECT t.run_id, t.policy, t.step, avg(t.score) AS score
        FROM trajectories t JOIN (SELECT DISTINCT run_id FROM own) USING (run_id)
        WHERE t.phase = 'evaluate' AND t.admitted AND starts_with(t.policy, 'RL') GROUP BY ALL
    ), budget AS (SELECT run_id, max(step) AS steps FROM played GROUP BY run_id
    ), last_ones AS (
        SELECT p.run_id, p.step, avg(p.score) AS score FROM played p JOIN budget b USING (run_id)
        WHERE p.step > 0.8 * b.steps GROUP BY p.run_id, p.step
        QUALIFY row_number() OVER (PARTITION BY p.run_id ORDER BY p.step DESC) <= 3
    ), ends AS (SELECT run_id, avg(score) AS score, count(*) AS evaluations FROM last_ones GROUP BY run_id
    ), validated AS (
        SELECT t.run_id, t.step, avg(t.score) AS score FROM trajectories t JOIN (SELECT DISTINCT run_id FROM own) USING (run_id)
        WHERE t.phase = 'validate' AND t.admitted GROUP BY ALL
    ), sixth AS (
        SELECT v.run_id, arg_min(v.score, abs(v.step - b.steps / 6.0)) AS early
        FROM validated v JOIN budget b USING (run_id) WHERE v.step > 0 GROUP BY v.run_id
    ), reached AS (
        SELECT o.run_id, o.target, min(v.step) FILTER (v.score >= o.target) AS step,
               min(v.step) FILTER (v.score >= o.target AND v.step > coalesce(low.step, -1)) AS held_step
        FROM own o JOIN validated v USING (run_id)
        LEFT JOIN (SELECT q.run_id, q.target, max(u.step) AS step FROM own q JOIN validated u USING (run_id)
                   WHERE u.score < q.target GROUP BY ALL) low ON low.run_id = o.run_id AND low.target = o.target
        GROUP BY ALL
    ), spent AS (
        SELECT r.run_id, r.target, r.step AS reached_step, r.held_step,
               sum(m.value) FILTER (m.name = 'seconds/cpu/sum' AND m.step <= coalesce(r.step, m.step)) AS cpu_seconds,
               sum(m.value) FILTER (m.name = 'tokens/all/sum' AND m.step <= coalesce(r.held_step, m.step)) AS tokens,
               sum(m.value) FILTER (m.name = 'policy/updates/count' AND m.step <= coalesce(r.held_step, m.step)) AS updates
        FROM reached r JOIN metrics m ON m.run_id = r.run_id
             AND m.name IN ('seconds/cpu/sum', 'tokens/all/sum', 'policy/updates/count')
        GROUP BY ALL
    ), began AS (
        SELECT run_id, arg_max(sha256, (step, incarnation, seq)) AS cold_start FROM checkpoints
        WHERE stage = 'sft' AND run_id IN (SELECT run_id FROM own) GROUP BY run_id
    ), weighted AS (
        SELECT t.run_id, t.policy, sum(u.reward / u.turn) / count(DISTINCT t.traj_id) AS time_weighted
        FROM trajectories t JOIN turns u USING (traj_id)
        WHERE t.run_id IN (SELECT run_id FROM own) AND t.phase = 'evaluate' AND t.admitted AND t.policy IN ('RL', 'RL last step')
        GROUP BY t.run_id, t.policy  -- RL alone where the last step is the best
        QUALIFY row_number() OVER (PARTITION BY t.run_id ORDER BY t.policy DESC) = 1
    )
    SELECT a.claim, a.hash, a.arm, a.seed, a.run_id, a.exploratory, a.state, a.code, e.score, e.evaluations, b.score AS best,
           s.early, n.ending, n.forgot, c.reached_step, c.cpu_seconds, c.held_step, c.tokens, c.updates, w.time_weighted,
           g.cold_start
    FROM asked a LEFT JOIN ends e USING (run_id) LEFT JOIN played b ON b.run_id = a.run_id AND b.policy = 'RL'
    LEFT JOIN sixth s ON s.run_id = a.run_id LEFT JOIN run_endings() n ON n.run_id = a.run_id AND n.branch IS NULL
    LEFT JOIN spent c ON c.run_id = a.run_id AND c.target IS NOT DISTINCT FROM a.target
    LEFT JOIN weighted w ON w.run_id = a.run_id LEFT JOIN began g ON g.run_id = a.run_id
    ORDER BY a.claim, a.hash, a.seed, a.arm;
