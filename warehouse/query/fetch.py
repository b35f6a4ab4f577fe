"""Fetching an answer, and telling a damaged file from a question that is wrong."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from userrl_core.errors import LogError
from warehouse.files.layout import Snapshot
from warehouse.files.pack_metadata import REPAIR, damaged, first_line

if TYPE_CHECKING:
    import pyarrow as pa

FILE_ERRORS: tuple[type[duckdb.Error], ...] = (
    duckdb.IOException,
    duckdb.InvalidInputException,
    duckdb.SerializationException,
    duckdb.InternalException,
    duckdb.FatalException,
)
"""What DuckDB raises for a file that vanished or is damaged (and for some wrong questions)."""


def damage(root: Path, seen: Snapshot, error: duckdb.Error) -> LogError | None:
    """The sentence about the damaged file behind an error, None when the list's files are not to blame."""
    found = damaged(root, seen)
    if found is not None:
        return LogError(f"{found[0]} is damaged ({found[1]}); {REPAIR}.")
    text = str(error)
    listed = [*map(str, seen.files()), *seen.packs]
    if "checksum" in text or any(name in text for name in listed):
        return LogError(f"A file in {root} is damaged ({first_line(error)}); {REPAIR}.")
    return None


def fetch(cursor: duckdb.DuckDBPyConnection, text: str, params: dict[str, Any], rows: int | None = None) -> pa.Table:
    """An answer as an Arrow table, at most `rows` rows of it; whole numbers are int64 wherever they fit."""
    import pyarrow as pa

    relation: Any = cursor.sql(text, params=params or None)
    if relation is None:
        return pa.table({})
    if rows is not None:
        parts, have = [], 0
        reader = relation.to_arrow_reader(2048)
        for part in reader:
            parts.append(part.slice(0, rows - have))
            have += parts[-1].num_rows
            if have >= rows:
                break
        table = pa.Table.from_batches(parts, reader.schema)
    else:
        table = relation.to_arrow_table()
    # DuckDB sums integers as HUGEINT, which Arrow knows only as a decimal: back to int64 wherever it fits.
    for i, field in enumerate(table.schema):
        if field.type == pa.decimal128(38, 0):
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    return table
