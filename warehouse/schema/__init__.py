"""The tables, read from the versioned SQL files beside this module.

The SQL is the single source: DuckDB's templates, the Parquet schema and the data dictionary all come from it. A version
is the number in a file's name; files after the first hold only ``CREATE TABLE`` and ``ALTER TABLE ... ADD COLUMN``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
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
)
"""Tables whose rows the turn log writes; `runs` and `trials` have files of their own."""

_TABLE = re.compile(r"^CREATE TABLE (\w+) \(\s*(?:--\s*(.*))?$")
_COLUMN = re.compile(r"^\s+(\w+)\s+(\w+(?:\[\])?)\s*,?\s*--\s*(.*)$")
_ADD = re.compile(r"^ALTER TABLE (\w+) ADD COLUMN (\w+) (\w+(?:\[\])?);\s*--\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its DuckDB type, its meaning, and the schema version that brought it."""

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
    """The schema files as (version, SQL text), oldest first."""
    files = sorted(f.name for f in resources.files(__name__).iterdir() if f.name.endswith(".sql"))
    return tuple((int(name.split("_")[0]), resources.files(__name__).joinpath(name).read_text()) for name in files)


@cache
def tables() -> dict[str, Table]:
    """Every table of the newest schema by name."""
    found: dict[str, Table] = {}
    for version, text in scripts():
        current: Table | None = None
        for line in text.splitlines():
            if opened := _TABLE.match(line):
                current = found[opened[1]] = Table(opened[1], opened[2] or "")
            elif added := _ADD.match(line):
                found[added[1]].columns[added[2]] = Column(added[2], added[3], added[4], version)
            elif current is not None and (column := _COLUMN.match(line)):
                current.columns[column[1]] = Column(column[1], column[2], column[3], version)
    return found


def version() -> int:
    """The newest schema version this code knows."""
    return scripts()[-1][0]


@cache
def arrow_schema(table: str) -> pa.Schema:
    """The table as an Arrow schema, carrying the schema version as metadata."""
    import pyarrow as pa

    kinds: dict[str, Any] = {
        "BIGINT": pa.int64(),
        "INTEGER": pa.int32(),
        "DOUBLE": pa.float64(),
        "FLOAT": pa.float32(),
        "VARCHAR": pa.string(),
        "BOOLEAN": pa.bool_(),
        "INTEGER[]": pa.list_(pa.int32()),
        "FLOAT[]": pa.list_(pa.float32()),
    }
    fields = [(column.name, kinds[column.type]) for column in tables()[table].columns.values()]
    return pa.schema(fields, metadata={"userrl_schema": str(version())})


def json_columns(table: str) -> str:
    """The table's columns as DuckDB's ``columns = {...}`` literal for `read_json`."""
    return "{" + ", ".join(f"'{c.name}': '{c.type}'" for c in tables()[table].columns.values()) + "}"
