-- US dollars of all model calls of these runs whose model has a known price.
select coalesce(sum(price), 0) from model_calls where list_contains($run_ids::varchar[], run_id)
