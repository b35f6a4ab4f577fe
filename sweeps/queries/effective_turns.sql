-- Effective turns (UserRL section 4.3): number of the last turn with a non-zero reward, mean over the last validation.
with last as (
    select max(step) as step from trajectories where run_id = $run_id and phase = 'validate' and admitted
), per_trajectory as (
    select t.traj_id, coalesce(max(u.turn) filter (where u.reward <> 0), 0) as effective
    from trajectories t join last on t.step = last.step join turns u on u.traj_id = t.traj_id
    where t.run_id = $run_id and t.phase = 'validate' and t.admitted
    group by t.traj_id
)
select avg(effective) as value, coalesce(stddev_samp(effective) / sqrt(count(*)), 0) as stderr, count(*) as n
from per_trajectory
