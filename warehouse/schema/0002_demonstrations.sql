-- Schema 2: which trajectories a cold start learnt from, and when a trajectory began.

ALTER TABLE trajectories ADD COLUMN started_at DOUBLE; -- Unix seconds (UTC) when it began; null before schema 2

CREATE TABLE demonstrations (          -- Trajectories that a cold start of the run learnt from, best first.
    run_id             VARCHAR,        -- the run that learnt
    incarnation        INTEGER,        -- which start of the run wrote this
    writer             INTEGER,        -- which process wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    stage              VARCHAR,        -- the stage that learnt
    traj_id            BIGINT,         -- the demonstration, of this run or another
    rank               INTEGER         -- from 1
);
