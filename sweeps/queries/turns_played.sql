-- Number of turns of a run's training: the cost of an experiment in user patience.
select count(*)::double as value, 0.0 as stderr, greatest(count(*), 1) as n
from turns where run_id = $run_id and phase in ('train', 'baseline')
