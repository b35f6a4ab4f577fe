"""The compactor: many small sealed segments become few immutable native packs. One at a time per warehouse.

1. Live files of dead writers are sealed (a writer holds a lock while it lives).
2. Leftovers of a killed compaction are removed: half-built packs, and segments that a pack holds already.
3. Sealed segments are written into new packs. Small packs are included once there are many.
4. One manifest, published by rename, makes the new packs valid. Only then their sources are removed.

A kill between any two steps loses and doubles nothing: before the manifest readers use the sources, after it the packs.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

from userrl_core.errors import LogError
from userrl_core.replaced_file import sync
from warehouse.files.layout import (
    REPAIR,
    Manifest,
    Segment,
    check_exists,
    run_folders,
    sealed_path,
    segments_in,
    take_snapshot,
    writer_dir,
)
from warehouse.files.lock import FolderLock
from warehouse.files.packs import damage, first_line, held_elsewhere, pack_entry, unlisted_packs
from warehouse.files.seal import seal
from warehouse.query.warehouse import Warehouse
from warehouse.search.index import update_index
from warehouse.upkeep.pack import Source, build

PACK_TURNS = 2_000_000
PACK_LONG_ROW_BYTES = 512 * 2**20
"""Approximate maximum bytes of long rows in one pack; building one needs three times as much memory."""

SMALL_PACK_TURNS = 400_000
MANY_SMALL_PACKS = 8

GRACE_SECONDS = 1.0
"""Seconds that packed sources stay after the manifest was published, so that running queries can finish."""

SEGMENTS_OF_LIVING_RUN = 32
"""Minimum number of sealed segments for packing an active run."""


@dataclass(slots=True)
class Compaction:
    """The result of one compaction. torn_bytes: incomplete last lines of dead writers; they held no whole row.

    nulled: values in the dead writers' rows that their columns cannot hold; they are null now. damaged: their lines
    that failed their checksum; the files are in quarantine.
    """

    recovered: int = 0
    torn_bytes: int = 0
    nulled: int = 0
    damaged: int = 0
    segments: int = 0
    packs: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    turns: int = 0
    indexed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """Approximate maximum turns, and bytes of long rows, in one pack."""

    turns: int
    long_row_bytes: int


def compact(
    root: Path,
    *,
    everything: bool = False,
    index: bool = True,
    pack_turns: int = PACK_TURNS,
    many_small_packs: int = MANY_SMALL_PACKS,
    pack_long_row_bytes: int = PACK_LONG_ROW_BYTES,
) -> Compaction:
    """Seal, pack, publish, remove the sources, and update the text index.

    everything: also pack the few segments of active runs. pack_turns: approximate maximum turns in one pack; it
    bounds the data built, and lost, at once. many_small_packs: merge this many packs of less than `SMALL_PACK_TURNS`,
    so that the number of packs grows with the logarithm of the nights. pack_long_row_bytes: approximate maximum bytes
    of long rows in one pack; it bounds the memory of building one.

    Raises LogError when another compactor is running, the disk is full or a file is damaged; no row is lost then.
    """
    started, result = time.perf_counter(), Compaction()
    check_exists(root)
    with FolderLock.take(root / "compactor"), _sentences(root):
        manifest = Manifest.read(root)
        remove_leftovers(root, manifest)
        replaced = [path for run in run_folders(root) for path in recover(run, result)]
        failure: Exception | None = None
        if index:
            # Before they are packed: a pack then never mixes segments that the index has with others that it lacks.
            try:
                with Warehouse(root) as warehouse:
                    result.indexed = update_index(root, warehouse.turns_beyond)
            except (sqlite3.Error, duckdb.Error, OSError, MemoryError) as error:
                failure = error
        bounds = Bounds(pack_turns, pack_long_row_bytes)
        _pack(root, manifest, result, everything, bounds, many_small_packs)
        if replaced and not result.packs:
            time.sleep(GRACE_SECONDS)
        for path in replaced:
            path.unlink(missing_ok=True)
        if failure is not None:
            raise LogError(
                "warehouse.not_compacted",
                f"The text index of {root} cannot be updated: {first_line(failure)}. Everything else was "
                "compacted. Free space and memory, then compact again.",
            ) from failure
    result.seconds = time.perf_counter() - started
    return result


@contextmanager
def _sentences(root: Path) -> Iterator[None]:
    """Convert the engines' errors to one sentence. Nothing is lost: sources are removed only after the manifest without them."""
    try:
        yield
    except LogError:
        raise
    except (OSError, duckdb.Error, pa.ArrowException, sqlite3.Error) as error:
        if fault := damage(root, take_snapshot(root), full="checksum" in str(error)):
            raise fault from error
        raise LogError(
            "warehouse.not_compacted",
            f"Compaction of {root} stopped: {first_line(error)}. Nothing was lost. Free space, then compact "
            f"again. {REPAIR} if that fails.",
        ) from error


def remove_leftovers(root: Path, manifest: Manifest) -> list[Path]:
    """Remove unneeded leftovers of a killed compaction or writer. Return the removed files. The lock must be held.

    Raises LogError, and removes nothing, for an unlisted pack with the only copy of some rows, and for an unreadable
    pack that should hold the rows of a file to remove.
    """
    leftovers = unlisted_packs(root, manifest)
    for path in leftovers:
        if not held_elsewhere(root, manifest, path):
            raise LogError(
                "warehouse.damaged",
                f"Pack {path} is not in the manifest, but it is the only one with some of its segments. {REPAIR}.",
            )
    # Half-built packs and spilled memory.
    leftovers += (root / "packs").glob(".*")
    holders = set()
    for run in run_folders(root):
        for form in ("sealed", "live"):
            for segment, path in segments_in(run, form):
                if pack := manifest.pack_of(segment):
                    holders.add(pack)
                    leftovers.append(path)
                elif form == "live" and sealed_path(run, segment).exists() and not alive(run, segment.writer):
                    leftovers.append(path)
        leftovers += [path for path in (run / "sealed").glob(".*.tmp") if not alive(run, int(path.name.split(".")[2]))]
    for pack in holders:
        pack_entry(root / "packs" / pack)
    for path in leftovers:
        _remove(path)
    return leftovers


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def recover(run: Path, done: Compaction) -> list[Path]:
    """Seal the live files of dead writers. Return these files; they can be removed. The lock must be held."""
    replaced: list[Path] = []
    by_writer: dict[int, list[tuple[Segment, Path]]] = {}
    for segment, path in segments_in(run, "live"):
        by_writer.setdefault(segment.writer, []).append((segment, path))
    for writer, files in by_writer.items():
        lock = FolderLock.take_if_free(writer_dir(run, writer))
        if lock is None:
            continue
        with lock:
            for segment, path in files:
                target = sealed_path(run, segment)
                # The writer may have sealed and removed it between our listing and its end.
                if path.exists() and not target.exists():
                    sealed = seal(path.read_bytes(), target, segment.table)
                    done.torn_bytes += sealed.torn_bytes
                    done.nulled += sealed.nulled
                    done.damaged += sealed.damaged
                    done.recovered += 1
                replaced.append(path)
    return replaced


def _pack(
    root: Path, manifest: Manifest, result: Compaction, everything: bool, bounds: Bounds, many_small_packs: int
) -> None:
    sources = []
    for run in run_folders(root):
        sealed = segments_in(run, "sealed")
        living = any(alive(run, writer) for writer in {segment.writer for segment, _ in segments_in(run, "live")})
        if everything or len(sealed) >= SEGMENTS_OF_LIVING_RUN or not living:
            sources += [Source.sealed(segment, path) for segment, path in sealed]
    result.segments = len(sources)
    small = [
        name
        for name, pack in manifest.packs.items()
        if pack["rows"].get("turns", 0) < SMALL_PACK_TURNS
        and pack.get("long_row_bytes", 0) <= bounds.long_row_bytes // 2
    ]
    if len(small) >= many_small_packs:
        result.merged = small
        sources += [Source.pack(root / "packs" / name) for name in small]
    if sources:
        result.packs = _publish(root, manifest, sources, bounds)
        result.turns = sum(manifest.packs[name]["rows"].get("turns", 0) for name in result.packs)


def _publish(root: Path, manifest: Manifest, sources: list[Source], bounds: Bounds) -> list[str]:
    folder = root / "packs"
    folder.mkdir(exist_ok=True)
    stamp = f"{time.time_ns():x}{os.getpid():x}"
    if not (root / "manifest.json").exists():
        # From now on a missing manifest beside packs is a lost one, never a first compaction that was killed.
        manifest.write(root)
    try:
        entries = build(folder, stamp, list(_batches(sources, bounds)))
    finally:
        for path in folder.glob(f".{stamp}*"):
            _remove(path)
    sync(folder)
    for source in sources:
        manifest.packs.pop(source.path.name, None)
    manifest.packs.update(entries)
    manifest.write(root)
    time.sleep(GRACE_SECONDS)
    for source in sources:
        source.path.unlink(missing_ok=True)
    return list(entries)


def _batches(sources: list[Source], bounds: Bounds) -> Iterator[list[Source]]:
    """Yield sources in the order of run, writer and segment, cut where a pack would have too many turns or bytes of
    long rows.
    """
    batch: list[Source] = []
    turns = long_row_bytes = 0
    for source in sorted(sources, key=lambda source: source.order):
        too_many = turns and turns + source.turns > bounds.turns
        if too_many or (long_row_bytes and long_row_bytes + source.long_row_bytes > bounds.long_row_bytes):
            yield batch
            batch, turns, long_row_bytes = [], 0, 0
        batch.append(source)
        turns += source.turns
        long_row_bytes += source.long_row_bytes
    if batch:
        yield batch


def alive(run: Path, writer: int) -> bool:
    """Return True if a writer's process lives."""
    lock = FolderLock.take_if_free(writer_dir(run, writer))
    if lock is None:
        return True
    lock.release()
    return False
