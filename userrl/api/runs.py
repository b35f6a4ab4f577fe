"""``userrl.runs``: the runs of this home."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def runs() -> pl.DataFrame:
    """Return the runs of this home, the oldest first: id, recipe, profile, seed, state, best and last validation, folder."""
    import polars as pl

    from userrl.run.results import validation_scores
    from userrl.run.run import all_runs

    rows = []
    for run in all_runs():
        best, last = validation_scores(run.folder)
        rows.append(
            {
                "run": run.id,
                "recipe": run.info.recipe,
                "profile": run.info.profile,
                "seed": run.info.seed,
                "state": run.status.state,
                "best": best,
                "last": last,
                "folder": str(run.folder),
            }
        )
    columns = {
        "run": pl.String,
        "recipe": pl.String,
        "profile": pl.String,
        "seed": pl.Int64,
        "state": pl.String,
        "best": pl.Float64,
        "last": pl.Float64,
        "folder": pl.String,
    }
    return pl.DataFrame(rows, schema=columns)
