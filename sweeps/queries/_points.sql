-- The validations of runs so far: one row per (run, stage, horizon, step). Pruning compares equal points only.
select run_id, stage, horizon, step, avg(score) as value, count(*) as n
from trajectories
where list_contains($run_ids::varchar[], run_id) and phase = 'validate' and admitted
group by all order by run_id, step
