-- US dollars of all model calls of a run whose model has a known price, including superseded ones; n counts the calls.
select coalesce(sum(price), 0) as value, 0.0 as stderr, greatest(count(*), 1) as n
from model_calls_all where run_id = $run_id
