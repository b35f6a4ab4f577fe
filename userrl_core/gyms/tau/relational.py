"""The same records in SQLite: relational tables made from them, and a private copy in memory per episode (TARL 2.1).

A domain's tables are made once, with their records, and kept as the bytes of a SQLite file. An episode's database
starts as a copy of those bytes. The tools read and change records as in `Database`; changes are written at the end of
a call. Values stay unchanged, because columns are untyped. A value that is neither text nor number, and a field that no record of
the domain has, is JSON in a blob.

A record is a row. An object with the same fields in every record is columns (``address.city`` is ``address_city``). A list, and an
object by name, is a table of its own: ``orders_items`` has the items of the table ``orders``, and the column ``orders_key``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from userrl_core.gyms.tau.database import Database, Record, Tables

Kind = Literal["record", "list", "values", "map", "pairs"]
"""The content of a table: records, or of a record's field a list of objects or of values, or objects or values by name."""
OBJECTS = ("record", "list", "map")


@dataclass(slots=True)
class RecordTable:
    """A table, with the statements that read and write it.

    keys: its parents' key columns and its own. fields: of its objects, in their order: a table below, the fields of an object that
    is columns, or None for a column.
    """

    name: str
    kind: Kind
    keys: tuple[str, ...]
    fields: dict[str, RecordTable | tuple[str, ...] | None] = field(default_factory=dict)

    @property
    def inner(self) -> dict[str, RecordTable]:
        """The tables below, by field."""
        return {name: part for name, part in self.fields.items() if isinstance(part, RecordTable)}

    def tree(self) -> Iterator[RecordTable]:
        """Yield this table and all below."""
        yield self
        for below in self.inner.values():
            yield from below.tree()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns after the keys."""
        if self.kind not in OBJECTS:
            return ("value",)
        groups = {name: part or () for name, part in self.fields.items() if not isinstance(part, RecordTable)}
        return (*(column for name, part in groups.items() for column in _columns(name, part)), "other")

    @property
    def create(self) -> str:
        """The statement that creates the table."""
        columns = ", ".join(f"{_q(column)} ANY" for column in (*self.keys, *self.columns))
        return f"CREATE TABLE {_q(self.name)} ({columns}, PRIMARY KEY ({', '.join(map(_q, self.keys))})) STRICT;"

    @property
    def write(self) -> str:
        """The statement that writes a row."""
        text = f"INSERT INTO {_q(self.name)} VALUES ({', '.join('?' * len((*self.keys, *self.columns)))})"
        if self.kind != "record":
            return text
        # The record keeps its place among the others.
        return f"{text} ON CONFLICT DO UPDATE SET {', '.join(f'{_q(c)} = excluded.{_q(c)}' for c in self.columns)}"


def _columns(name: str, group: tuple[str, ...]) -> list[str]:
    return [f"{name}_{part}" for part in group] or [name]


def table_of(name: str, kind: Kind, objects: Sequence[Any], used: set[str], above: tuple[str, ...] = ()) -> RecordTable:
    """Return the table that holds these records, or these values of a field. used: the names of tables so far, in small letters.

    A field whose column has the name of another one (SQLite sees no capitals) stays in the JSON of `other`.
    """
    while name.lower() in used:
        name += "_"
    used.add(name.lower())
    table = RecordTable(name, kind, (*above, f"{name}_key"))
    if kind not in OBJECTS:
        return table
    order: list[str] = []
    for record in objects:
        position = 0
        for key in record:
            if key not in order:
                order.insert(position, key)
            position = order.index(key) + 1
    columns = {"other", *map(str.lower, table.keys)}
    for key in filter(str.isprintable, order):
        values = [record[key] for record in objects if record.get(key) is not None]
        part = _part(f"{name}_{key}", values, used, table.keys)
        added = [] if isinstance(part, RecordTable) else [column.lower() for column in _columns(key, part or ())]
        if columns.isdisjoint(added) and len(set(added)) == len(added):
            columns.update(added)
            table.fields[key] = part
    return table


def _part(
    name: str, values: Sequence[Any], used: set[str], keys: tuple[str, ...]
) -> RecordTable | tuple[str, ...] | None:
    """Return the form of a field with these values."""
    if not values or not (all(isinstance(v, dict) for v in values) or all(isinstance(v, list) for v in values)):
        return None
    by_name = isinstance(values[0], dict)
    entries = [entry for value in values for entry in (value.values() if by_name else value)]
    if entries and all(isinstance(entry, dict) for entry in entries):
        return table_of(name, "map" if by_name else "list", entries, used, keys)
    if any(isinstance(entry, (dict, list)) for entry in entries):
        return None
    if by_name and entries and len({*map(frozenset, values)}) == 1 and all(map(str.isprintable, values[0])):
        return tuple(values[0])
    return table_of(name, "pairs" if by_name else "values", entries, used, keys)


class Template:
    """A domain's database as bytes, and the mapping between records and tables."""

    def __init__(self, base: Tables) -> None:
        self.base = base
        used = set[str]()
        self.plans = {name: table_of(name, "record", list(records.values()), used) for name, records in base.items()}
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
                    self.connection.execute(f"DELETE FROM {_q(below.name)} WHERE {_q(plan.keys[0])} = ?", (key,))
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
            by_parent = rows_by_table.setdefault(part.name, {})
            depth = len(part.keys) - 1
            for row in self.connection.execute(f"SELECT * FROM {_q(part.name)}{where} ORDER BY rowid", values):
                by_parent.setdefault(row[:depth], []).append(row)
        for row in rows_by_table[plan.name].get((), ()):
            yield row[0], _record(plan, row, rows_by_table)


def _write(connection: sqlite3.Connection, plan: RecordTable, keys: tuple[Any, ...], value: Any) -> None:
    """Write a record, or one entry of a nested table, with everything below it."""
    if plan.kind not in OBJECTS:
        connection.execute(plan.write, (*keys, _encoded(value)))
        return
    rest, row = dict(value), []
    entries: list[tuple[RecordTable, Any, Any]] = []
    for name, part in plan.fields.items():
        nested = rest.get(name)
        if part is None:
            row.append(_encoded(nested))
            if nested is not None:
                del rest[name]
        elif isinstance(part, RecordTable):
            if isinstance(nested, dict if part.kind in ("map", "pairs") else list):
                pairs = list(nested.items()) if isinstance(nested, dict) else list(enumerate(nested))
                if part.kind not in OBJECTS or all(isinstance(entry, dict) for _, entry in pairs):
                    entries += [(part, key, entry) for key, entry in pairs]
                    del rest[name]
                    continue
            if name not in rest:
                rest[""] = [*rest.get("", ()), name]  # the field is missing, and not empty
        else:
            fits = isinstance(nested, dict) and bool(nested) and {*nested} <= {*part} and None not in nested.values()
            row += [_encoded(nested.get(inner)) if fits and nested else None for inner in part]
            if fits:
                del rest[name]
    connection.execute(plan.write, (*keys, *row, json.dumps(rest).encode() if rest else None))
    for below, key, entry in entries:
        _write(connection, below, (*keys, key), entry)


def _record(plan: RecordTable, row: Sequence[Any], rows_by_part: Mapping[str, Mapping[tuple[Any, ...], Any]]) -> Any:
    depth = len(plan.keys)
    if plan.kind not in OBJECTS:
        return _decoded(row[depth])
    values, keys = iter(row[depth:]), tuple(row[:depth])
    other = json.loads(row[-1]) if row[-1] is not None else {}
    missing_fields = other.pop("", ())
    record = dict[str, Any]()
    for name, part in plan.fields.items():
        if isinstance(part, RecordTable):
            if name in missing_fields or name in other:
                continue
            entries = [
                (line[depth], _record(part, line, rows_by_part)) for line in rows_by_part[part.name].get(keys, ())
            ]
            record[name] = dict(entries) if part.kind in ("map", "pairs") else [entry for _, entry in entries]
        elif part is None:
            if (stored := _decoded(next(values))) is not None:
                record[name] = stored
        elif group := {inner: value for inner in part if (value := _decoded(next(values))) is not None}:
            record[name] = group
    return {**record, **other}


def _encoded(value: Any) -> Any:
    """Keep texts and numbers, and encode everything else as a blob of JSON. None stays None, for a missing value."""
    if value is None or type(value) in (str, int, float):
        return value
    return json.dumps(value).encode()


def _decoded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, bytes) else value


def _q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
