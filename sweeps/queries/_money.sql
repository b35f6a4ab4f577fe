-- US dollars of all model calls of these runs whose model has a known price, including superseded ones.
select coalesce(sum(price), 0) from model_calls_all where list_contains($run_ids::varchar[], run_id)
