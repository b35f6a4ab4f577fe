"""Fetching of results, and the distinction between a damaged file and a wrong query."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from duckdb.sqltypes import DuckDBPyType

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
    if fault := damage(root, snapshot, full="checksum" in text):
        return fault
    if "checksum" in text or any(name in text for name in (*map(str, snapshot.files()), *snapshot.packs)):
        return LogError("warehouse.damaged", f"A file in {root} is damaged ({first_line(error)}). {REPAIR}.")
    return None


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return column names that all differ, in any case: ``score, score`` becomes ``score, score_1``.

    DuckDB names the columns of a Parquet file by the same rule.
    """
    repeats: dict[str, int] = {}
    distinct = []
    for name in names:
        unique = name
        while unique.lower() in repeats:
            unique = f"{name}_{repeats[name.lower()]}"
            repeats[name.lower()] += unique.lower() in repeats
        repeats[unique.lower()] = 1
        distinct.append(unique)
    return distinct


def fetch(cursor: duckdb.DuckDBPyConnection, text: str, params: dict[str, Any]) -> pa.Table:
    """Return a result as an Arrow table; whole numbers are int64 wherever they fit, and column names differ."""
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
    return table.rename_columns(distinct_names(table.column_names))


def fetch_rows(
    connection: duckdb.DuckDBPyConnection, text: str, params: dict[str, Any], rows: int
) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
    """Return columns, their types and at most `rows` rows. Column names differ.

    Dates, times and intervals are texts, also within lists and structures, because Python can represent neither
    infinite dates nor months.
    """
    relation: Any = connection.sql(text, params=params or None)
    if relation is None:
        return [], [], []
    columns = distinct_names(relation.columns)
    types = [str(kind) for kind in relation.types]
    exact = [_exact(kind) for kind in relation.types]
    if exact != types:
        casts = (f"#{n}::{kind}" if kind != types[n - 1] else f"#{n}" for n, kind in enumerate(exact, 1))
        relation = relation.project(", ".join(casts))
    return columns, types, relation.limit(rows).fetchall()


def _exact(kind: DuckDBPyType) -> str:
    """Return the type with VARCHAR in place of every type of dates, times and intervals. Other types keep their text."""
    if kind.id.startswith(("date", "time", "interval")):
        return "VARCHAR"
    if kind.id not in ("list", "array", "struct", "tuple", "map", "union"):
        return str(kind)
    children = [(name, child) for name, child in kind.children if isinstance(child, DuckDBPyType)]
    inner = [_exact(child) for _, child in children]
    if inner == [str(child) for _, child in children]:
        return str(kind)
    match kind.id:
        case "list":
            return f"{inner[0]}[]"
        case "array":
            return f"{inner[0]}[{dict(kind.children)['size']}]"
        case "struct":
            fields = (f"{quoted(name)} {field}" for (name, _), field in zip(children, inner, strict=True))
            return f"STRUCT({', '.join(fields)})"
        case "map" | "tuple":
            return f"{kind.id.upper()}({', '.join(inner)})"
    return "VARCHAR"


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


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
