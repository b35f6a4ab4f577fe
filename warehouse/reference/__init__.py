"""Published result tables of the papers, as tables in schema `reference`, to compare a run with.

Files are named ``<paper>_<table>.csv``; scores are as printed, in the unit of the paper's table.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from warehouse.schema import literal


@cache
def definitions() -> dict[str, str]:
    """Return SQL that creates the table of each CSV file, by its name without the schema."""
    return {
        file.stem: f"CREATE OR REPLACE TABLE reference.{file.stem} AS "
        f"FROM read_csv({literal(str(file))}, header = true, all_varchar = false);\n"
        for file in sorted(Path(__file__).parent.glob("*.csv"))
    }
