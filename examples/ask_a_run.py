"""Questions to a run: by a shipped query, in SQL, and in polars.

python examples/ask_a_run.py [RUN]          # a run's name, the beginning of its id, or latest
"""

from __future__ import annotations

import sys

import polars as pl

from warehouse import open_warehouse


def main(run: str = "latest") -> None:
    """Print three answers."""
    with open_warehouse() as warehouse:
        # A shipped query: `userrl sql "from dictionary"` lists them all.
        print(warehouse.query("gym_scores", run=run).pl().select("policy", "gym", "n", "score", "standard_error"))

        # SQL, here over a shipped query: how conversations end.
        print(warehouse.sql(f"select * from stop_reasons(run := '{run}') order by all").pl())

        # Everything of every turn, and the rest is polars: what a turn earns by its place in the conversation.
        turns = warehouse.query("turn_details", run=run).pl()
    print(
        turns.filter("admitted")
        .group_by("gym", "phase", "turn")
        .agg(pl.len().alias("turns"), pl.mean("reward"), pl.mean("completion_tokens").alias("tokens"))
        .sort("gym", "phase", "turn")
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
