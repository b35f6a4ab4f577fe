"""Published result tables of the papers, as tables in schema `reference`, to compare a run with.

Files are named ``<paper>_<table>.csv``; scores are as printed, in the unit of the paper's table.
"""

from __future__ import annotations

from pathlib import Path

from warehouse.schema import literal


def statements() -> list[str]:
    """Return SQL that creates one table per CSV file."""
    return [
        f"CREATE OR REPLACE TABLE reference.{file.stem} AS "
        f"FROM read_csv({literal(str(file))}, header = true, all_varchar = false)"
        for file in sorted(Path(__file__).parent.glob("*.csv"))
    ]
