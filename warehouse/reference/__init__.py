"""Result tables as the papers print them, as tables in schema `reference`: facts to hold a run beside.

Files are named ``<paper>_<table>.csv``; scores are as printed, in the unit of the paper's table.
"""

from __future__ import annotations

from importlib import resources


def reference_statements() -> list[str]:
    """SQL that makes one table per CSV file."""
    made = []
    for file in sorted(resources.files(__name__).iterdir(), key=lambda f: f.name):
        if file.name.endswith(".csv"):
            path = str(file).replace("'", "''")
            made.append(
                f"CREATE OR REPLACE TABLE reference.{file.name.removesuffix('.csv')} AS "
                f"FROM read_csv('{path}', header = true, all_varchar = false)"
            )
    return made
