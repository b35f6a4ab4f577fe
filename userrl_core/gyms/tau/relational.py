"""The same records in SQLite: a relational schema per domain, and a private copy in memory per episode (TARL 2.1).

A domain's tables are made once, with their records, and kept as the bytes of a SQLite file. An episode's database
starts as a copy of those bytes. The tools read and change records as in `Database`; changes are written at the end of
a call. Values stay unchanged, because columns are untyped. A value that is neither text nor number (a rare list, a field
unknown to the schema) is JSON in a blob.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from userrl_core.gyms.tau.database import Database, Record, Tables

Kind = Literal["record", "list", "values", "map", "pairs"]


@dataclass(frozen=True, slots=True)
class NestedRecord:
    """An object within a record, stored as columns: ``address.city`` is the column ``address_city``."""

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordTable:
    """A table of records, or of the contents of a record's field.

    key: its own key column; a nested table has its parent's keys before it. fields: in the order of the records; a
    final ``?`` marks a flag. kind: the kind of the field: a list of objects or of values, or objects or values by
    name.
    """

    table: str
    key: str
    fields: tuple[str | NestedRecord | Inner, ...] = ()
    kind: Kind = "record"


@dataclass(frozen=True, slots=True)
class Inner:
    """A field of a record with its own table."""

    name: str
    table: RecordTable


Schema = Mapping[str, RecordTable]
"""A domain's tables, by the names that the tools use."""


@dataclass(slots=True)
class _QueryPlan:
    """A table with the statements that read and write it."""

    table: RecordTable
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    inner: list[tuple[str, _QueryPlan]] = field(default_factory=list)

    def tree(self) -> Iterator[_QueryPlan]:
        yield self
        for _, plan in self.inner:
            yield from plan.tree()

    @property
    def create(self) -> str:
        columns = ", ".join(f'"{column}" ANY' for column in (*self.keys, *self.columns))
        return f'CREATE TABLE "{self.table.table}" ({columns}, PRIMARY KEY ({_quoted(self.keys)})) STRICT;'

    @property
    def write(self) -> str:
        column_names = (*self.keys, *self.columns)
        text = f'INSERT INTO "{self.table.table}" VALUES ({", ".join("?" * len(column_names))})'
        if self.table.kind != "record":
            return text
        # The record keeps its place among the others.
        return f"{text} ON CONFLICT DO UPDATE SET {', '.join(f'{_q(c)} = excluded.{_q(c)}' for c in self.columns)}"


def _plan(table: RecordTable, above: tuple[str, ...] = ()) -> _QueryPlan:
    columns: list[str] = []
    for part in table.fields:
        if isinstance(part, NestedRecord):
            columns += [f"{part.name}_{name}" for name in part.fields]
        elif isinstance(part, str):
            columns.append(part.removesuffix("?"))
    if table.kind in ("values", "pairs"):
        columns = ["value"]
    else:
        columns.append("other")
    plan = _QueryPlan(table, (*above, table.key), tuple(columns))
    plan.inner = [(part.name, _plan(part.table, plan.keys)) for part in table.fields if isinstance(part, Inner)]
    return plan


class Template:
    """A domain's database as bytes, and the mapping between records and tables."""

    def __init__(self, schema: Schema, base: Tables) -> None:
        self.base = base
        self.plans = {name: _plan(table) for name, table in schema.items()}
        connection = sqlite3.connect(":memory:")
        connection.executescript("".join(plan.create for top in self.plans.values() for plan in top.tree()))
        for name, records in base.items():
            for key, record in records.items():
                _write(connection, self.plans[name], (key,), record)
        connection.commit()
        self.image = connection.serialize()
        connection.close()


class SqliteDatabase(Database):
    """One episode's own copy of a template, with the interface of `Database`."""

    def __init__(self, template: Template) -> None:
        super().__init__(template.base)
        self._plans = template.plans
        self._touched: dict[tuple[str, str], None] = {}
        # SQLite serialises by itself, and an episode may be closed from another thread than the one that played it.
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.deserialize(template.image)

    def get(self, table: str, key: str) -> Record | None:
        """Return a record to read; None if missing."""
        if (table, key) in self._changed:
            return self._changed[table, key]
        return next((record for _, record in self._read(table, key)), None)

    def edit(self, table: str, key: str) -> Record:
        """Return a record to change in place; `commit` writes it. Raises KeyError if missing."""
        record = self.get(table, key)
        if record is None:
            raise KeyError(key)
        self._changed[table, key] = record
        return record

    def rows(self, table: str) -> Iterator[tuple[str, Record]]:
        """Yield all records of a table to read, in order of creation."""
        self.commit()
        yield from self._read(table)

    def commit(self) -> None:
        """Write the records changed since the last commit."""
        if not self._changed:
            return
        self.connection.execute("BEGIN")
        for (table, key), record in self._changed.items():
            plan = self._plans[table]
            for below in plan.tree():
                if below is not plan:
                    self.connection.execute(f'DELETE FROM "{below.table.table}" WHERE {_q(plan.keys[0])} = ?', (key,))
            _write(self.connection, plan, (key,), record)
            self._touched[table, key] = None
        self.connection.execute("COMMIT")
        self._changed.clear()

    def changes(self) -> dict[str, Record]:
        """Return the records that differ from the template's, by ``table/id``, as stored in the tables."""
        self.commit()
        now = {(table, key): self.get(table, key) for table, key in sorted(self._touched)}
        return {
            f"{table}/{key}": record
            for (table, key), record in now.items()
            if record is not None and record != self._base[table].get(key)
        }

    def close(self) -> None:
        """Free the memory."""
        self.connection.close()

    def _read(self, table: str, key: str | None = None) -> Iterator[tuple[str, Record]]:
        plan = self._plans[table]
        where, values = (f" WHERE {_q(plan.keys[0])} = ?", (key,)) if key is not None else ("", ())
        rows_by_table: dict[str, dict[tuple[Any, ...], list[tuple[Any, ...]]]] = {}
        for part in plan.tree():
            by_parent = rows_by_table.setdefault(part.table.table, {})
            depth = len(part.keys) - 1
            for row in self.connection.execute(f'SELECT * FROM "{part.table.table}"{where} ORDER BY rowid', values):
                by_parent.setdefault(row[:depth], []).append(row)
        for row in rows_by_table[plan.table.table].get((), ()):
            yield row[0], _record(plan, row, rows_by_table)


def _write(connection: sqlite3.Connection, plan: _QueryPlan, keys: tuple[Any, ...], value: Any) -> None:
    """Write a record, or one entry of a nested table, with everything below it."""
    if plan.table.kind in ("values", "pairs"):
        connection.execute(plan.write, (*keys, _encoded(value)))
        return
    rest, row = dict(value), []
    for part in plan.table.fields:
        if isinstance(part, str):
            name = part.removesuffix("?")
            value_given = rest.pop(name, None) if rest.get(name) is not None else None
            row.append(int(value_given) if part != name and isinstance(value_given, bool) else _encoded(value_given))
        elif isinstance(part, NestedRecord):
            group = rest.get(part.name)
            fits = isinstance(group, dict) and set(group) <= set(part.fields) and None not in group.values()
            row += [_encoded(group.get(name)) if fits and group else None for name in part.fields]
            if fits and group:
                del rest[part.name]
    entries: list[tuple[_QueryPlan, Any, Any]] = []
    for name, below in plan.inner:
        nested = rest.get(name)
        by_name = below.table.kind in ("map", "pairs")
        objects = below.table.kind in ("list", "map")
        if isinstance(nested, dict if by_name else list):
            pairs = list(nested.items()) if isinstance(nested, dict) else list(enumerate(nested))
            if not objects or all(isinstance(entry, dict) for _, entry in pairs):
                entries += [(below, key, entry) for key, entry in pairs]
                del rest[name]
                continue
        if name not in rest:
            rest[""] = [*rest.get("", ()), name]  # the field is missing, and not empty
    connection.execute(plan.write, (*keys, *row, json.dumps(rest).encode() if rest else None))
    for below, key, entry in entries:
        _write(connection, below, (*keys, key), entry)


def _record(plan: _QueryPlan, row: Sequence[Any], rows_by_part: Mapping[str, Mapping[tuple[Any, ...], Any]]) -> Any:
    depth = len(plan.keys)
    if plan.table.kind in ("values", "pairs"):
        return _decoded(row[depth])
    values, keys = iter(row[depth:]), tuple(row[:depth])
    other = json.loads(row[-1]) if row[-1] is not None else {}
    missing_fields = other.pop("", ())
    inner, record = dict(plan.inner), dict[str, Any]()
    for part in plan.table.fields:
        if isinstance(part, Inner):
            if part.name in missing_fields or part.name in other:
                continue
            below = inner[part.name]
            entries = [
                (line[depth], _record(below, line, rows_by_part))
                for line in rows_by_part[below.table.table].get(keys, ())
            ]
            record[part.name] = (
                dict(entries) if below.table.kind in ("map", "pairs") else [entry for _, entry in entries]
            )
        elif isinstance(part, NestedRecord):
            group = {name: value for name in part.fields if (value := _decoded(next(values))) is not None}
            if group:
                record[part.name] = group
        else:
            stored, name = _decoded(next(values)), part.removesuffix("?")
            if stored is not None:
                record[name] = bool(stored) if part != name and isinstance(stored, int) else stored
    return {**record, **other}


def _encoded(value: Any) -> Any:
    """Keep texts and numbers, and encode everything else as a blob of JSON. None stays None, for a missing value."""
    if value is None or type(value) in (str, int, float):
        return value
    return json.dumps(value).encode()


def _decoded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, bytes) else value


def _q(name: str) -> str:
    return f'"{name}"'


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(_q, names))
