-- Mean score of the last validation of a run, with its standard error over tasks. Never the test split: a sweep that
-- chose on it would report its own selection.
with last as (
    select max(step) as step from trajectories where run_id = $run_id and phase = 'validate' and admitted
)
select avg(score) as value, coalesce(stddev_samp(score) / sqrt(count(*)), 0) as stderr, count(*) as n
from trajectories, last
where run_id = $run_id and phase = 'validate' and admitted and trajectories.step = last.step
