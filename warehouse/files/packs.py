"""Metadata of packs, and detection of damaged files.

Every pack carries a ledger of its segments. The manifest can therefore be rebuilt, and a pack that the manifest does
not list is not mistaken for an orphan.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb

from userrl_core.errors import LogError
from warehouse.files.checksum import intact_parquet
from warehouse.files.layout import REPAIR, Manifest, Segment, Snapshot, run_dir, sealed_path, segments_of
from warehouse.schema import literal


def pack_entry(path: Path) -> dict[str, Any]:
    """Return a pack's manifest entry from its own tables. Raises LogError for a file that is not a complete pack."""
    segments: dict[str, dict[str, dict[str, list[list[int]]]]] = {}
    try:
        with duckdb.connect(":memory:") as con:
            con.execute(f"ATTACH {literal(str(path))} AS pack (READ_ONLY)")
            for run, table, writer, first, last in con.execute("FROM pack.ledger ORDER BY ALL").fetchall():
                segments.setdefault(run, {}).setdefault(table, {}).setdefault(str(writer), []).append([first, last])
            # Packs of earlier versions do not say how much of them is long rows.
            [format_row] = con.execute("FROM pack.format").fetchall()
            version, long_row_bytes = (*format_row, 0)[:2]
            tables = [table for (table,) in con.execute("SELECT table_name FROM pack.counts").fetchall()]
            rows = {table: con.execute(f"SELECT count(*) FROM pack.{table}").fetchall()[0][0] for table in tables}
        stat = path.stat()
    except (duckdb.Error, OSError, ValueError) as error:
        raise LogError(
            "warehouse.damaged", f"Pack {path.name} cannot be read: {first_line(error)}. {REPAIR}."
        ) from error
    return {
        "segments": segments,
        "rows": rows,
        "schema": version,
        "long_row_bytes": long_row_bytes,
        "bytes": stat.st_size,
        "created": stat.st_mtime,
    }


def ledger(segments: Iterable[Segment]) -> Iterator[tuple[str, str, int, int, int]]:
    """Yield segments as rows of a pack's ledger: (run, table, writer, first, last), each an unbroken range."""
    for key, group in groupby(sorted(segments), key=lambda segment: (segment.run_id, segment.table, segment.writer)):
        # Consecutive numbers lie equally far from their places in the row.
        for _, numbers in groupby(enumerate(s.number for s in group), key=lambda placed: placed[1] - placed[0]):
            unbroken = [number for _, number in numbers]
            yield (*key, unbroken[0], unbroken[-1])


def unlisted_packs(root: Path, manifest: Manifest) -> list[Path]:
    """Return complete packs that the manifest does not list."""
    return sorted(path for path in (root / "packs").glob("*.duckdb") if path.name not in manifest.packs)


def held_elsewhere(root: Path, manifest: Manifest, path: Path) -> bool:
    """Return True if each segment of an unlisted pack is also sealed or in a listed pack. Raises LogError when one is
    unreadable.
    """
    holders = set()
    for segment in segments_of(pack_entry(path)):
        if not sealed_path(run_dir(root, segment.run_id), segment).exists():
            holders.add(manifest.pack_of(segment))
    if None in holders:
        return False
    for name in holders:
        pack_entry(root / "packs" / str(name))
    return True


def read_whole(path: Path) -> str | None:
    """Read every value of a pack. Return its fault, None without one. Raises LogError when memory is short."""
    try:
        with duckdb.connect(":memory:") as con:
            con.execute(f"ATTACH {literal(str(path))} AS pack (READ_ONLY)")
            names = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'pack'").fetchall()
            for (table,) in names:
                con.execute(f"SELECT bit_xor(hash(t)) FROM pack.{table} t").fetchall()
    except duckdb.OutOfMemoryException as error:
        raise LogError(
            "warehouse.no_memory", f"There is too little memory to read {path}. Free some and check again."
        ) from error
    except (duckdb.Error, OSError) as error:
        return first_line(error)
    return None


def damage(root: Path, snapshot: Snapshot, *, full: bool = False) -> LogError | None:
    """Return the error about the first listed pack or sealed segment that cannot be opened or fails its checksum, or None.

    full: also read every value of the packs.
    """
    import pyarrow as pa  # late: a tenth of a second, and only a failing query needs it
    import pyarrow.parquet as pq

    for name in snapshot.packs:
        try:
            pack_entry(root / "packs" / name)
        except LogError as error:
            return _damaged(root / "packs" / name, first_line(error.__cause__ or error))
        if full and (why := read_whole(root / "packs" / name)):
            return _damaged(root / "packs" / name, why)
    for paths in snapshot.sealed.values():
        for path in paths:
            try:
                pq.read_metadata(path)
                if intact_parquet(path.read_bytes()) is False:
                    return _damaged(path, "its checksum fails")
            except FileNotFoundError:
                continue
            except (pa.ArrowException, OSError) as error:
                return _damaged(path, first_line(error))
    return None


def _damaged(path: Path, why: str) -> LogError:
    return LogError("warehouse.damaged", f"{path} is damaged ({why}). {REPAIR}.")


def first_line(error: BaseException) -> str:
    """Return an engine's message without its stack of notes and without a full stop; of a failed write, the system's words."""
    text = (getattr(error, "strerror", None) or str(error)).strip()
    if number := re.search(r'"errno":"(\d+)"', text):  # DuckDB's message is JSON
        return os.strerror(int(number[1]))
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".")
