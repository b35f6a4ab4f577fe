"""Rows of the CSV files under data/, one a run or a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

DATA = Path(__file__).parents[1] / "data"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, in order; nothing if there is no file."""
    return pl.read_csv(path, infer_schema_length=None).to_dicts() if path.is_file() else []


def add_row(path: Path, key: Sequence[str], row: Mapping[str, Any]) -> None:
    """Add a row to a file, in the order of the key. A row with the same key is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {tuple(str(row_by_key[name]) for name in key): row_by_key for row_by_key in read_rows(path)}
    rows[tuple(str(row[name]) for name in key)] = dict(row)
    pl.DataFrame([rows[row_by_key] for row_by_key in sorted(rows)], infer_schema_length=None).write_csv(path)
