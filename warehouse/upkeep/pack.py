"""Building packs: native DuckDB files of many segments, with credits joined to their turns.

Text columns are zstd-compressed. Rows lie in the order of run, writer and segment, and segments are sorted by
(traj_id, turn), so that a trajectory is found through the row groups' minima and maxima without an index.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from userrl_core.errors import LogError
from warehouse import schema
from warehouse.files.layout import Segment, as_ranges
from warehouse.files.pack_metadata import REPAIR, first_line, pack_entry

LONG_TEXT = frozenset({"content", "thought", "message", "observation", "info", "messages", "payload", "fields"})

Ranges = Mapping[str, Mapping[str, Mapping[str, list[list[int]]]]]


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from: one sealed segment, or an existing pack (segment None) with all its tables."""

    path: Path
    segment: Segment | None
    held: Ranges
    turns: int

    @classmethod
    def sealed(cls, segment: Segment, path: Path) -> Source:
        """A sealed Parquet segment. Raises LogError when it is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            rows = pq.read_metadata(path).num_rows
        except pa.ArrowException as error:
            raise LogError(f"Segment {path} cannot be read: {first_line(error)}; {REPAIR}.") from error
        held = {segment.run_id: {segment.table: {str(segment.writer): [[segment.number, segment.number]]}}}
        return cls(path, segment, held, rows if segment.table == "turns" else 0)

    @classmethod
    def pack(cls, root: Path, name: str, held: Ranges) -> Source:
        """An existing pack. Raises LogError when it is damaged."""
        return cls(root / "packs" / name, None, held, pack_entry(root / "packs" / name)["rows"]["turns"])

    @property
    def order(self) -> tuple[str, int, int, str]:
        """Packs first (they are older), then run, writer and number, so that a trajectory's rows lie together."""
        if self.segment is None:
            return ("", 0, 0, self.path.name)
        return (self.segment.run_id, self.segment.writer, self.segment.number, self.segment.table)


def build(folder: Path, stamp: str, batches: list[list[Source]]) -> dict[str, dict[str, Any]]:
    """Write one pack per batch, each durable, and return their manifest entries. Nothing counts until those are published.

    Credits are joined to turns over all batches; those whose turns are in no batch stay in the last pack's own table.
    So one source's rows may be spread over two packs, and the packs get their names once all of them are complete.
    """
    made: dict[str, dict[str, Any]] = {}
    with duckdb.connect(":memory:", config={"temp_directory": str(folder / f".{stamp}.spill")}) as con:
        con.execute("SET preserve_insertion_order = true")
        con.execute("SET enable_progress_bar = false")
        aliases = _attach(con, [source for batch in batches for source in batch])
        everything = [source for batch in batches for source in batch]
        con.execute(f"CREATE TABLE credits AS {_rows(everything, 'credits', aliases)}")
        con.execute("CREATE TABLE used (traj_id BIGINT, turn INTEGER)")
        for number, batch in enumerate(batches, 1):
            name = f"{stamp}{number:03d}.duckdb"
            temporary = folder / f".{name}.building"
            con.execute(f"ATTACH {_quote(str(temporary))} AS pack")
            con.execute("SET checkpoint_threshold = '256MB'")
            for table in schema.LOGGED:
                _fill(con, table, batch, aliases, last=number == len(batches))
            rows = {t: con.execute(f"SELECT count(*) FROM pack.{t}").fetchall()[0][0] for t in schema.LOGGED}
            held = _merged(batch)
            _write_ledger(con, held)
            con.execute("CHECKPOINT pack")
            con.execute("DETACH pack")
            _sync(temporary)
            made[name] = {
                "segments": held,
                "rows": rows,
                "schema": schema.version(),
                "bytes": temporary.stat().st_size,
                "created": time.time(),
            }
    for name in made:
        (folder / f".{name}.building").rename(folder / name)
    return made


def _fill(
    con: duckdb.DuckDBPyConnection,
    table: str,
    batch: list[Source],
    aliases: dict[tuple[Path, str], str],
    *,
    last: bool,
) -> None:
    columns = schema.tables()[table].columns.values()
    # Long text shrinks most under zstd; short repeated words are smaller and far quicker to filter in dictionaries.
    shape = ", ".join(f"{c.name} {c.type}{' USING COMPRESSION zstd' if c.name in LONG_TEXT else ''}" for c in columns)
    con.execute(f"CREATE TABLE pack.{table} ({shape})")
    if table == "credits":
        if last:
            con.execute(
                "INSERT INTO pack.credits BY NAME SELECT c.* FROM credits c ANTI JOIN used USING (traj_id, turn)"
            )
        return
    rows = _rows(batch, table, aliases)
    if table != "turns":
        con.execute(f"INSERT INTO pack.{table} BY NAME {rows}")
        return
    # Only turns packed for the first time take their credits in: what was packed (and perhaps exported) stays as it is.
    old = [source for source in batch if source.segment is None]
    new = [source for source in batch if source.segment is not None]
    if old:
        con.execute(f"INSERT INTO pack.turns BY NAME {_rows(old, table, aliases)}")
    con.execute(
        "INSERT INTO pack.turns BY NAME SELECT t.* REPLACE (coalesce(t.shaped, c.shaped) AS shaped, "
        "coalesce(t.advantage, c.advantage) AS advantage) "
        f"FROM ({_rows(new, table, aliases)}) t LEFT JOIN credits c USING (traj_id, turn)"
    )
    con.execute(
        "INSERT INTO used SELECT traj_id, turn FROM credits "
        f"SEMI JOIN ({_rows(new, table, aliases)}) t USING (traj_id, turn)"
    )


def _rows(batch: Iterable[Source], table: str, aliases: dict[tuple[Path, str], str]) -> str:
    """One table's rows of a batch in order, with the newest schema's columns."""
    kinds = schema.tables()[table].columns.values()
    parts = ["SELECT " + ", ".join(f"NULL::{c.type} AS {c.name}" for c in kinds) + " WHERE false"]
    files: list[str] = []
    for source in batch:
        if source.segment is None:
            # A pack of an older schema has no table that came later.
            if name := aliases.get((source.path, table)):
                parts.append(f"FROM {name}")
        elif source.segment.table == table:
            files.append(_quote(str(source.path)))
    if files:
        parts.append(f"FROM read_parquet([{', '.join(files)}], union_by_name = true, hive_partitioning = false)")
    names = ", ".join(c.name for c in kinds)
    return f"SELECT {names} FROM ({' UNION ALL BY NAME '.join(parts)})"


def _attach(con: duckdb.DuckDBPyConnection, sources: list[Source]) -> dict[tuple[Path, str], str]:
    aliases: dict[tuple[Path, str], str] = {}
    for number, source in enumerate(sources):
        if source.segment is None:
            con.execute(f"ATTACH {_quote(str(source.path))} AS source_{number} (READ_ONLY)")
            for (table,) in con.execute(
                "SELECT table_name FROM duckdb_tables() WHERE database_name = ?", [f"source_{number}"]
            ).fetchall():
                aliases[source.path, table] = f"source_{number}.{table}"
    return aliases


def _merged(batch: list[Source]) -> dict[str, dict[str, dict[str, list[list[int]]]]]:
    numbers: dict[str, dict[str, dict[str, set[int]]]] = {}
    for source in batch:
        for run, tables in source.held.items():
            for table, writers in tables.items():
                for writer, ranges in writers.items():
                    into = numbers.setdefault(run, {}).setdefault(table, {}).setdefault(writer, set())
                    for first, final in ranges:
                        into.update(range(first, final + 1))
    return {
        run: {
            table: {writer: as_ranges(found) for writer, found in writers.items()} for table, writers in tables.items()
        }
        for run, tables in numbers.items()
    }


def _write_ledger(con: duckdb.DuckDBPyConnection, held: Ranges) -> None:
    """The pack's own account of what it holds: the manifest can be made again from it."""
    con.execute(
        "CREATE TABLE pack.ledger "
        "(run_id VARCHAR, table_name VARCHAR, writer INTEGER, first_segment INTEGER, last_segment INTEGER)"
    )
    rows = [
        f"({_quote(run)}, {_quote(table)}, {writer}, {first}, {final})"
        for run, tables in held.items()
        for table, writers in tables.items()
        for writer, ranges in writers.items()
        for first, final in ranges
    ]
    if rows:
        con.execute(f"INSERT INTO pack.ledger VALUES {', '.join(rows)}")
    con.execute(f"CREATE TABLE pack.format AS SELECT {schema.version()} AS schema_version")
    con.execute("CREATE TABLE pack.counts (table_name VARCHAR, rows BIGINT)")
    for table in schema.LOGGED:
        con.execute(f"INSERT INTO pack.counts SELECT '{table}', count(*) FROM pack.{table}")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
