"""``userrl.runs``: the runs of this home."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def runs() -> pl.DataFrame:
    """Return the runs of this home, oldest first, with recipe, profile, seed, state, best and last validation, ending
    and folder.
    """
    import polars as pl

    from userrl.run.listed import listed_runs

    columns = {
        "run": pl.String, "recipe": pl.String, "profile": pl.String, "seed": pl.Int64, "state": pl.String, "best": pl.Float64,
        "last": pl.Float64, "ending": pl.String, "folder": pl.String,
    }  # fmt: skip
    rows, _ = listed_runs()
    return pl.DataFrame([vars(row) | {"folder": str(row.folder)} for row in rows], schema=columns)
