"""Fetching an answer, and telling a damaged file from a query that is wrong."""

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
"""What DuckDB raises for a file that vanished or is damaged (and for some wrong queries)."""


def may_be_of_a_file(error: duckdb.Error) -> bool:
    """Whether a file may be to blame. A block of a pack that fails its checksum has no class of its own."""
    return isinstance(error, FILE_ERRORS) or type(error) is duckdb.Error


def file_fault(root: Path, snapshot: Snapshot, error: duckdb.Error) -> LogError | None:
    """The error about the damaged file behind DuckDB's, None when the snapshot's files are not to blame."""
    text = str(error)
    if fault := damage(root, snapshot, whole="checksum" in text):
        return fault
    if "checksum" in text or any(name in text for name in (*map(str, snapshot.files()), *snapshot.packs)):
        return LogError(f"A file in {root} is damaged ({first_line(error)}); {REPAIR}.")
    return None


def fetch(cursor: duckdb.DuckDBPyConnection, text: str, params: dict[str, Any]) -> pa.Table:
    """An answer as an Arrow table; whole numbers are int64 wherever they fit."""
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
    """Columns, their types and at most `rows` of its rows; dates and times as text, since Python knows no infinite ones."""
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
    """The answer to a query of columns of `turns`. Not through a relation, which is planned twice; nor through Python's own
    values, for which pyarrow loads pandas (40 MB) where that is installed.
    """
    import pyarrow as pa

    fields = [schema.arrow_schema("turns").field(name) for name in columns]
    table: Any = cursor.execute(text).to_arrow_table()
    return table.cast(pa.schema(fields))
