-- The validations of runs so far: one row per (run, stage, step), with the horizon that the stage trains at beside the one
-- that is validated at. Pruning compares equal points only. Before a stage's first attempt its horizon is not known yet.
with trained as (
    select run_id, stage, max(horizon) as horizon
    from trajectories where list_contains($run_ids::varchar[], run_id) and phase = 'train' group by all
)
select v.run_id, v.stage, coalesce(trained.horizon, v.horizon) as horizon, v.horizon as validated, v.step, avg(v.score)
from trajectories v left join trained on trained.run_id = v.run_id and trained.stage = v.stage
where list_contains($run_ids::varchar[], v.run_id) and v.phase = 'validate' and v.admitted
group by all order by v.run_id, v.step
