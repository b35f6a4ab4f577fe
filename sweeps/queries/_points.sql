-- The validations of runs so far: one row per (run, stage, step), with the training horizon of the stage and the validation
-- horizon. Pruning compares only equal points. A validation counts once its metrics are logged, which happens when it is
-- complete. The first few attempts of an unfinished validation would give a different score. Before a stage's first
-- attempt its horizon is not known yet.
with trained as (
    select run_id, stage, max(horizon) as horizon
    from trajectories where list_contains($run_ids::varchar[], run_id) and phase = 'train' group by all
), over as (
    select distinct run_id, stage, step
    from metrics where list_contains($run_ids::varchar[], run_id) and name = 'validate/score/mean'
)
select v.run_id, v.stage, coalesce(trained.horizon, v.horizon) as horizon, v.horizon as validated, v.step, avg(v.score)
from trajectories v
join over using (run_id, stage, step)
left join trained on trained.run_id = v.run_id and trained.stage = v.stage
where v.phase = 'validate' and v.admitted
group by all order by v.run_id, v.step
