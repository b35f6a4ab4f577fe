"""Write the runs of claims as data files: data/claims/runs.csv and three Parquet files. New runs are appended.

python -m lab.pages.claims_data .userrl [OTHER_HOME ...] [--only CLAIM ...] [--to data/claims]

runs.csv            one row a run: claim, hashes, arm, seed, and every number that a verdict needs
validation.parquet  one row a run, step and task tier: score, score within the training horizon, tokens and conversations so far
test.parquet        one row a run, policy, step and test conversation: task, tier, score, turns, return, how it ended
steps.parquet       one row a run and training step: horizon, conversations, tokens, updates, CPU-seconds, entropy, signal

A row that is there already is replaced by the newer one.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from warehouse import Warehouse, open_warehouse

RUNS = """
SELECT a.claim, a.hash, c.registration, a.code, c.measure, c.registered::VARCHAR AS registered, a.arm, a.seed,
       a.run_id AS run, a.exploratory, a.state, a.score, a.evaluations, a.best, a.early, a.time_weighted, a.ending,
       a.forgot, e.best_step, e.last_step, e.fall, e.stderr,
       e.own_horizon, e.own_fall, e.own_stderr, a.tokens, a.updates, a.cpu_seconds, a.held_step, a.reached_step, a.cold_start
FROM claim_arms() a LEFT JOIN claims() c ON c.claim = a.claim AND c.hash = a.hash
LEFT JOIN run_endings() e ON e.run_id = a.run_id AND e.branch IS NULL
WHERE a.state <> 'started' ORDER BY a.claim, a.hash, a.arm, a.seed
"""
VALIDATION = """
SELECT t.run_id AS run, t.step, t.gym, coalesce(t.tier, '') AS tier, count(*) AS n, avg(t.score) AS score,
       avg(CASE WHEN t.turns > coalesce(l.horizon, e.own_horizon) THEN 0.0 ELSE t.score END) AS own_score,
       any_value(l.all_tokens_so_far) AS tokens, any_value(l.episodes_so_far) AS conversations
FROM trajectories t LEFT JOIN training_log() l ON l.run_id = t.run_id AND l.step = t.step
LEFT JOIN run_endings() e ON e.run_id = t.run_id AND e.branch IS NULL
WHERE t.phase = 'validate' AND t.admitted AND t.score IS NOT NULL AND t.run_id = $run GROUP BY ALL ORDER BY ALL
"""
TEST = """
SELECT t.run_id AS run, t.policy, t.step, t.gym, coalesce(t.tier, '') AS tier, t.task_id AS task, t.attempt, t.score, t.turns,
       t.return_sum, t.stop_reason
FROM trajectories t WHERE t.phase = 'evaluate' AND t.admitted AND t.run_id = $run ORDER BY ALL
"""
STEPS = """
SELECT t.run_id AS run, t.step, t.horizon, t.episodes AS conversations, t.all_tokens AS tokens, t.updates, t.cpu_seconds, t.entropy,
       t.signal_share AS signal
FROM training_log() t WHERE t.run_id = $run ORDER BY run, step
"""
RUNS_KEY = ("claim", "hash", "arm", "seed")
OF_A_RUN: Mapping[str, tuple[str, Sequence[str]]] = {
    "validation.parquet": (VALIDATION, ("run", "step", "gym", "tier")),
    "test.parquet": (TEST, ("run", "policy", "step", "gym", "task", "attempt")),
    "steps.parquet": (STEPS, ("run", "step")),
}
"""Query and key of each file of single runs."""


def main() -> None:
    """Write the files from the homes that are named."""
    parser = argparse.ArgumentParser(description="Data of claims.")
    parser.add_argument("homes", nargs="+", type=Path)
    parser.add_argument("--only", nargs="+", metavar="CLAIM", help="claims to write; default: all")
    parser.add_argument("--to", type=Path, default=Path(__file__).parents[2] / "data" / "claims")
    given = parser.parse_args()
    for home in given.homes:
        with open_warehouse(home / "warehouse") as warehouse:
            added = append(warehouse, given.to, given.only)
        print(f"{home}: {added} runs")
    for path in sorted(given.to.glob("*.parquet")):
        print(f"{path}: {path.stat().st_size:,} bytes")


def append(warehouse: Warehouse, folder: Path, only: Sequence[str] | None = None) -> int:
    """Add the claims' runs of one warehouse to the files of a folder. Return their number. only: these claims alone."""
    runs = warehouse.sql(RUNS).pl()
    runs = runs.filter(pl.col("claim").is_in(only)) if only else runs
    if runs.is_empty():
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    add(runs, folder / "runs.csv", RUNS_KEY)
    ids = runs["run"].drop_nulls().unique()
    for name, (query, key) in OF_A_RUN.items():
        # One query for all runs would join the turns of all of them in memory.
        add(pl.concat([warehouse.sql(query, run=run).pl() for run in ids]), folder / name, key)
    return len(runs)


def add(rows: pl.DataFrame, path: Path, key: Sequence[str]) -> None:
    """Add rows to a file. A row with the same key is replaced."""
    if path.is_file():
        earlier = pl.read_csv(path, infer_schema_length=None) if path.suffix == ".csv" else pl.read_parquet(path)
        rows = pl.concat([earlier.cast(dict(rows.schema), strict=False), rows], how="diagonal_relaxed")
    rows = rows.unique(key, keep="last", maintain_order=True).sort(key)
    if path.suffix == ".csv":
        rows.write_csv(path)
    else:
        rows.write_parquet(path, compression="zstd")


if __name__ == "__main__":
    main()
