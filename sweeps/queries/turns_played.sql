-- How many turns a run's training took: what an experiment costs in user patience.
select count(*)::double as value, 0.0 as stderr, greatest(count(*), 1) as n
from turns where run_id = $run_id and phase in ('train', 'baseline')
