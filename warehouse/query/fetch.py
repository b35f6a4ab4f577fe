"""Fetching of results, and the distinction between a damaged file and a wrong query."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from userrl_core.errors import LogError
from warehouse import schema
from warehouse.files.layout import REPAIR, Snapshot
from warehouse.files.packs import damage, first_line

if TYPE_CHECKING:
    import pyarrow as pa

FILE_ERRORS: tuple[type[duckdb.Error], ...] = (
    duckdb.IOException,
    duckdb.InvalidInputException,
    duckdb.SerializationException,
    duckdb.InternalException,
    duckdb.FatalException,
)
"""DuckDB's exceptions for a file that vanished or is damaged (and for some wrong queries)."""


def may_be_of_a_file(error: duckdb.Error) -> bool:
    """Return True if a file may be the cause. A pack's block that fails its checksum raises the base class."""
    return isinstance(error, FILE_ERRORS) or type(error) is duckdb.Error


def file_fault(root: Path, snapshot: Snapshot, error: duckdb.Error) -> LogError | None:
    """Return the error about the damaged file behind DuckDB's error, None when the snapshot's files are not the cause."""
    text = str(error)
    if fault := damage(root, snapshot, whole="checksum" in text):
        return fault
    if "checksum" in text or any(name in text for name in (*map(str, snapshot.files()), *snapshot.packs)):
        return LogError("warehouse.damaged", f"A file in {root} is damaged ({first_line(error)}). {REPAIR}.")
    return None


def fetch(cursor: duckdb.DuckDBPyConnection, text: str, params: dict[str, Any]) -> pa.Table:
    """Return a result as an Arrow table; whole numbers are int64 wherever they fit."""
    import pyarrow as pa  # late: a tenth of a second that `userrl sql` does without

    relation: Any = cursor.sql(text, params=params or None)
    if relation is None:
        return pa.table({})
    table = relation.to_arrow_table()
    # DuckDB sums integers as HUGEINT, which Arrow knows only as a decimal: back to int64 wherever it fits.
    for i, field in enumerate(table.schema):
        if field.type == pa.decimal128(38, 0):
            with contextlib.suppress(pa.ArrowInvalid):
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    return table


def fetch_rows(
    connection: duckdb.DuckDBPyConnection, text: str, params: dict[str, Any], rows: int
) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
    """Return columns, their types and at most `rows` rows. Dates and times are texts, because Python cannot represent
    infinite ones.
    """
    relation: Any = connection.sql(text, params=params or None)
    if relation is None:
        return [], [], []
    columns = list(relation.columns)
    types = [str(kind) for kind in relation.types]
    temporal = [kind.startswith(("DATE", "TIME")) for kind in types]
    if any(temporal):
        as_text = (f"#{n}::VARCHAR" if is_temporal else f"#{n}" for n, is_temporal in enumerate(temporal, 1))
        relation = relation.project(", ".join(as_text))
    return columns, types, relation.limit(rows).fetchall()


# A copy of a few thousand rows costs less than planning the query again.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result")


def fetch_turns(cursor: duckdb.DuckDBPyConnection, text: str, columns: Sequence[str]) -> pa.Table:
    """Return the result of a query on columns of `turns`.

    It does not use a relation, which is planned twice, or Python values: for them pyarrow loads pandas (40 MB) where
    it is installed.
    """
    import pyarrow as pa

    fields = [schema.arrow_schema("turns").field(name) for name in columns]
    table: Any = cursor.execute(text).to_arrow_table()
    return table.cast(pa.schema(fields))
