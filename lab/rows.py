"""Rows of the CSV files under data/, one a run or a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from userrl_core.file_lock import locked
from userrl_core.replaced_file import replacing

DATA = Path(__file__).parents[1] / "data"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, in order; nothing if there is no file."""
    return pl.read_csv(path, infer_schema_length=None).to_dicts() if path.is_file() else []


def add_rows(path: Path, key: Sequence[str], *added: Mapping[str, Any]) -> None:
    """Add rows to a file, in the order of the key. A row with the same key is replaced. Several processes may add at once."""
    with locked(path.with_name(f".{path.name}.lock")):
        rows = {tuple(str(row[name]) for name in key): dict(row) for row in (*read_rows(path), *added)}
        frame = pl.DataFrame([rows[row_key] for row_key in sorted(rows)], infer_schema_length=None)
        with replacing(path) as file:
            frame.write_csv(file)
