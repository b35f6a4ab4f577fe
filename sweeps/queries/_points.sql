-- The validations of a run so far: one row per (stage, horizon, step). Pruning compares equal rows only.
select stage, horizon, step, avg(score) as value, count(*) as n
from trajectories
where run_id = $run_id and phase = 'validate' and admitted
group by all order by step
