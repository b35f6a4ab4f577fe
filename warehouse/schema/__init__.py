"""The tables, read from the versioned SQL files in this folder, and the SQL form of values.

The SQL is the single source of DuckDB's templates, the Parquet schema and the data dictionary. A version is the
number in a file's name. Files after the first hold only ``CREATE TABLE`` and ``ALTER TABLE ... ADD COLUMN``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

LOGGED = (
    "turns",
    "trajectories",
    "credits",
    "model_calls",
    "metrics",
    "events",
    "stages",
    "tasks",
    "checkpoints",
    "demonstrations",
    "judgements",
    "labels",
    "user_features",
    "protocols",
)
"""Tables whose rows the turn log writes; `runs` and `trials` have their own files."""

_TABLE = re.compile(r"^CREATE TABLE (\w+) \(\s*(?:--\s*(.*))?$")
_COLUMN = re.compile(r"^\s+(\w+)\s+(\w+(?:\[\])?)\s*,?\s*--\s*(.*)$")
_ADD = re.compile(r"^ALTER TABLE (\w+) ADD COLUMN (\w+) (\w+(?:\[\])?);\s*--\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its DuckDB type, its meaning, and the schema version that added it."""

    name: str
    type: str
    doc: str
    since: int


@dataclass(slots=True)
class Table:
    """One table with its columns in order."""

    name: str
    doc: str
    columns: dict[str, Column] = field(default_factory=dict)


@cache
def scripts() -> tuple[tuple[int, str], ...]:
    """Return the schema files as (version, SQL text), oldest first."""
    files = sorted(Path(__file__).parent.glob("*.sql"))
    return tuple((int(file.name.split("_")[0]), file.read_text()) for file in files)


@cache
def tables() -> dict[str, Table]:
    """Return every table of the newest schema by name."""
    by_name: dict[str, Table] = {}
    for version, text in scripts():
        current: Table | None = None
        for line in text.splitlines():
            if opened := _TABLE.match(line):
                current = by_name[opened[1]] = Table(opened[1], opened[2] or "")
            elif added := _ADD.match(line):
                by_name[added[1]].columns[added[2]] = Column(added[2], added[3], added[4], version)
            elif current is not None and (column := _COLUMN.match(line)):
                current.columns[column[1]] = Column(column[1], column[2], column[3], version)
    return by_name


@cache
def types(table: str) -> dict[str, str]:
    """Return the DuckDB type of each column, in order."""
    return {column.name: column.type for column in tables()[table].columns.values()}


def version() -> int:
    """Return the newest schema version this code knows."""
    return scripts()[-1][0]


@cache
def arrow_schema(table: str) -> pa.Schema:
    """Return the table as an Arrow schema, with the schema version as metadata."""
    import pyarrow as pa

    arrow_types: dict[str, Any] = {
        "BIGINT": pa.int64(),
        "INTEGER": pa.int32(),
        "DOUBLE": pa.float64(),
        "FLOAT": pa.float32(),
        "VARCHAR": pa.string(),
        "BOOLEAN": pa.bool_(),
        "INTEGER[]": pa.list_(pa.int32()),
        "FLOAT[]": pa.list_(pa.float32()),
    }
    fields = [(name, arrow_types[kind]) for name, kind in types(table).items()]
    return pa.schema(fields, metadata={"userrl_schema": str(version())})


def json_columns(table: str) -> str:
    """Return the table's columns as DuckDB's ``columns = {...}`` literal for `read_json`."""
    return "{" + ", ".join(f"'{name}': '{kind}'" for name, kind in types(table).items()) + "}"


def literal(value: object) -> str:
    """Return a text, a number or None as an SQL literal."""
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def file_list(files: Iterable[Path]) -> str:
    """Return files as an SQL list of literals."""
    return "[" + ", ".join(literal(str(file)) for file in files) + "]"
