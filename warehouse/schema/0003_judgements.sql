-- Schema 3: what a judge of turns said.

CREATE TABLE judgements (              -- A judge's mark of every turn of the trajectories it was given; keyed (traj_id, turn).
    traj_id            BIGINT,         -- the trajectory
    turn               INTEGER,        -- from 1
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- which start of the run wrote this
    writer             INTEGER,        -- which process wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    judge              VARCHAR,        -- who judged: rule, or a model's name
    score              INTEGER,        -- 1 right, 0 flaw or by-product, -1 the major deviation; null where it gave no usable marks
    rule_score         INTEGER,        -- the rule judge's mark of the same turn
    category           VARCHAR,        -- of the trajectory: perfect, good, good_attempt, failed, success_with_deviation, unjudged
    reward             DOUBLE,         -- what training took for the turn's reward; null where it left the trajectory out
    price              DOUBLE          -- US dollars: the judge's call divided by the turns; null when not known, 0 for the rule judge
);
