-- Schema 6: the source of a price, and labels of conversations and turns.

ALTER TABLE model_calls ADD COLUMN price_source VARCHAR; -- date and table of the price, such as 2026-11-25 genai-prices 0.2.3; null without a price

CREATE TABLE labels (                  -- Labels of conversations and turns, append-only; the view labels has the latest of each labeller.
    traj_id            BIGINT,         -- the trajectory
    turn               INTEGER,        -- from 1; 0 for a label of the whole conversation
    run_id             VARCHAR,        -- the run
    incarnation        INTEGER,        -- the start of the run that wrote this
    writer             INTEGER,        -- the process that wrote this
    seq                BIGINT,         -- order within the writer
    logged_at          DOUBLE,         -- Unix seconds (UTC)
    name               VARCHAR,        -- name of the label set
    value              VARCHAR,        -- the label, such as yes or no; null if it could not be decided
    source             VARCHAR,        -- pattern, function, judge or person
    labeller           VARCHAR,        -- the pattern, the function's name, the judge's model and rubric, or the person's name
    reason             VARCHAR,        -- why: the matched text, the judge's reason, or why there is no value
    price              DOUBLE          -- US dollars of the judge's call; null when not known, 0 without a call
);
