"""Building of packs: native DuckDB files of many segments, with credits joined to their turns.

Text columns are zstd-compressed. Rows are in the order of run, writer and segment, and segments are sorted by
(traj_id, turn). The row groups' minima and maxima therefore locate a trajectory without an index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from userrl_core.errors import LogError
from userrl_core.replaced_file import sync
from warehouse import schema
from warehouse.files.checksum import intact_parquet
from warehouse.files.layout import REPAIR, Segment, segments_of
from warehouse.files.packs import first_line, ledger, pack_entry
from warehouse.schema import file_list, literal
from warehouse.write.wal import SEGMENT_BYTES

LONG_TEXT = frozenset({"content", "thought", "message", "observation", "info", "messages", "payload", "fields"})

LONG_ROW_BYTES = 128 * 2**10
"""Average row length above which rows are also counted by their bytes: DuckDB holds 2,048 rows at once, three times over."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source of rows: one sealed segment, or an existing pack with all its tables.

    long_row_bytes: the bytes of segments whose rows are longer than `LONG_ROW_BYTES` on average.
    """

    path: Path
    segments: tuple[Segment, ...]
    turns: int
    packed: bool
    long_row_bytes: int = 0

    @classmethod
    def sealed(cls, segment: Segment, path: Path) -> Source:
        """Return the source of a sealed Parquet segment. Raises LogError when it is damaged."""
        content = path.read_bytes()
        # What is packed gets the pack's own checksums: the last moment to notice.
        if intact_parquet(content) is False:
            raise LogError("warehouse.damaged", f"Segment {path} fails its checksum. {REPAIR}.")
        try:
            metadata = pq.read_metadata(pa.BufferReader(content))
            long_row_bytes = _long_row_bytes(content, metadata)
        except pa.ArrowException as error:
            raise LogError(
                "warehouse.damaged", f"Segment {path} cannot be read: {first_line(error)}. {REPAIR}."
            ) from error
        turns = metadata.num_rows if segment.table == "turns" else 0
        return cls(path, (segment,), turns, packed=False, long_row_bytes=long_row_bytes)

    @classmethod
    def pack(cls, path: Path) -> Source:
        """Return the source of an existing pack. Raises LogError when it is damaged."""
        entry = pack_entry(path)
        segments = tuple(segments_of(entry))
        return cls(path, segments, entry["rows"]["turns"], packed=True, long_row_bytes=entry["long_row_bytes"])

    @property
    def order(self) -> tuple[str, int, int, str]:
        """Return a sort key: packs first (they are older), then run, writer and number, so that a trajectory's rows
        stay together.
        """
        if self.packed:
            return ("", 0, 0, self.path.name)
        (segment,) = self.segments
        return (segment.run_id, segment.writer, segment.number, segment.table)


def _long_row_bytes(content: bytes, metadata: pq.FileMetaData) -> int:
    """Return the bytes of a sealed segment's rows in memory if they are long on average, else 0."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(index) for group in groups for index in range(group.num_columns)]
    # A file says how large its columns are without repeated values; a long one is in one of them at least once.
    if all(column.total_uncompressed_size < LONG_ROW_BYTES // 8 for column in columns):
        return 0
    # A live file is sealed before it holds more rows of that length.
    if metadata.num_rows > 2 * SEGMENT_BYTES // LONG_ROW_BYTES:
        return 0
    size = int(pq.read_table(pa.BufferReader(content)).nbytes)
    return size if size > metadata.num_rows * LONG_ROW_BYTES else 0


def build(folder: Path, stamp: str, batches: list[list[Source]]) -> dict[str, dict[str, Any]]:
    """Write one pack per batch, each durable, and return their manifest entries. The packs are invalid until these
    are published.

    Credits are joined to turns over all batches. Credits whose turns are in no batch stay in the last pack's own
    table. One source's rows may thus be spread over two packs, and the packs get their names once all of them are
    complete.
    """
    entries: dict[str, dict[str, Any]] = {}
    with duckdb.connect(":memory:", config={"temp_directory": str(folder / f".{stamp}.spill")}) as con:
        con.execute("SET preserve_insertion_order = true")
        con.execute("SET enable_progress_bar = false")
        sources = [source for batch in batches for source in batch]
        aliases = _attach(con, sources)
        con.execute(f"CREATE TABLE credits AS {_rows(sources, 'credits', aliases)}")
        con.execute("CREATE TABLE used (traj_id BIGINT, turn INTEGER)")
        for number, batch in enumerate(batches, 1):
            name = f"{stamp}{number:03d}.duckdb"
            draft = folder / f".{name}.building"
            con.execute(f"ATTACH {literal(str(draft))} AS pack")
            con.execute("SET checkpoint_threshold = '256MB'")
            for table in schema.LOGGED:
                _fill(con, table, batch, aliases, last=number == len(batches))
            _describe(con, batch)
            con.execute("CHECKPOINT pack")
            con.execute("DETACH pack")
            sync(draft)
            entries[name] = pack_entry(draft)
    for name in entries:
        (folder / f".{name}.building").rename(folder / name)
    return entries


def _fill(
    con: duckdb.DuckDBPyConnection,
    table: str,
    batch: list[Source],
    aliases: dict[tuple[Path, str], str],
    *,
    last: bool,
) -> None:
    # Long text shrinks most under zstd; short repeated words are smaller and far quicker to filter in dictionaries.
    columns = ", ".join(
        f"{name} {kind}{' USING COMPRESSION zstd' if name in LONG_TEXT else ''}"
        for name, kind in schema.types(table).items()
    )
    con.execute(f"CREATE TABLE pack.{table} ({columns})")
    if table == "credits":
        if last:
            con.execute(
                "INSERT INTO pack.credits BY NAME SELECT c.* FROM credits c ANTI JOIN used USING (traj_id, turn)"
            )
        return
    if table != "turns":
        con.execute(f"INSERT INTO pack.{table} BY NAME {_rows(batch, table, aliases)}")
        return
    # Only turns packed for the first time take their credits in: what was packed (and perhaps exported) stays as it is.
    if repacked := [source for source in batch if source.packed]:
        con.execute(f"INSERT INTO pack.turns BY NAME {_rows(repacked, table, aliases)}")
    new = _rows([source for source in batch if not source.packed], table, aliases)
    con.execute(
        "INSERT INTO pack.turns BY NAME SELECT t.* REPLACE (coalesce(t.shaped, c.shaped) AS shaped, "
        "coalesce(t.advantage, c.advantage) AS advantage) "
        f"FROM ({new}) t LEFT JOIN credits c USING (traj_id, turn)"
    )
    con.execute(f"INSERT INTO used SELECT traj_id, turn FROM credits SEMI JOIN ({new}) t USING (traj_id, turn)")


def _rows(batch: Iterable[Source], table: str, aliases: dict[tuple[Path, str], str]) -> str:
    types = schema.types(table)
    parts = ["SELECT " + ", ".join(f"NULL::{kind} AS {name}" for name, kind in types.items()) + " WHERE false"]
    files: list[Path] = []
    for source in batch:
        if source.packed:
            # A pack of an older schema has no table that came later.
            if name := aliases.get((source.path, table)):
                parts.append(f"FROM {name}")
        elif source.segments[0].table == table:
            files.append(source.path)
    if files:
        parts.append(f"FROM read_parquet({file_list(files)}, union_by_name = true, hive_partitioning = false)")
    return f"SELECT {', '.join(types)} FROM ({' UNION ALL BY NAME '.join(parts)})"


def _attach(con: duckdb.DuckDBPyConnection, sources: list[Source]) -> dict[tuple[Path, str], str]:
    aliases: dict[tuple[Path, str], str] = {}
    for number, source in enumerate(source for source in sources if source.packed):
        con.execute(f"ATTACH {literal(str(source.path))} AS source_{number} (READ_ONLY)")
        for (table,) in con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = ?", [f"source_{number}"]
        ).fetchall():
            aliases[source.path, table] = f"source_{number}.{table}"
    return aliases


def _describe(con: duckdb.DuckDBPyConnection, batch: list[Source]) -> None:
    """Write the pack's ledger and counts; the manifest can be rebuilt from them."""
    con.execute(
        "CREATE TABLE pack.ledger "
        "(run_id VARCHAR, table_name VARCHAR, writer INTEGER, first_segment INTEGER, last_segment INTEGER)"
    )
    rows = [f"({', '.join(map(literal, row))})" for row in ledger(s for source in batch for s in source.segments)]
    con.execute(f"INSERT INTO pack.ledger VALUES {', '.join(rows)}")
    long_row_bytes = sum(source.long_row_bytes for source in batch)
    con.execute(
        f"CREATE TABLE pack.format AS SELECT {schema.version()} AS schema_version, "
        f"{long_row_bytes}::BIGINT AS long_row_bytes"
    )
    con.execute("CREATE TABLE pack.counts (table_name VARCHAR, rows BIGINT)")
    for table in schema.LOGGED:
        con.execute(f"INSERT INTO pack.counts SELECT '{table}', count(*) FROM pack.{table}")
