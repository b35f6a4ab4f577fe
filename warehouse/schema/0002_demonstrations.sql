-- Schema 2: the demonstrations of a cold start, and the start time of a trajectory.

ALTER TABLE trajectories ADD COLUMN started_at DOUBLE; -- Unix seconds (UTC) of its start; null before schema 2

CREATE TABLE demonstrations (          -- Demonstrations of a cold start of the run, best first.
    run_id             VARCHAR,        -- the run of the cold start
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    stage              VARCHAR,        -- the stage of the cold start
    traj_id            BIGINT,         -- the demonstration, of this run or another
    rank               INTEGER         -- from 1
);
