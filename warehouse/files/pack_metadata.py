"""What a pack says of itself, and which files are damaged.

Every pack carries a ledger of the segments in it, so the manifest can be made again, and no pack has to be believed to
be a leftover only because the manifest does not name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb

from userrl_core.errors import LogError
from warehouse.files.layout import Manifest, Segment, Snapshot, run_dir, sealed_path

REPAIR = "run `userrl warehouse check --repair`"


def pack_entry(path: Path) -> dict[str, Any]:
    """A pack's manifest entry as its own tables give it. Raises LogError for a file that is no whole pack."""
    segments: dict[str, dict[str, dict[str, list[list[int]]]]] = {}
    try:
        with duckdb.connect(":memory:") as con:
            con.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS pack (READ_ONLY)")
            for run, table, writer, first, final in con.execute("FROM pack.ledger ORDER BY ALL").fetchall():
                segments.setdefault(run, {}).setdefault(table, {}).setdefault(str(writer), []).append([first, final])
            (version,) = con.execute("SELECT schema_version FROM pack.format").fetchall()[0]
            counted = dict(con.execute("FROM pack.counts").fetchall())
            rows = {t: con.execute(f"SELECT count(*) FROM pack.{t}").fetchall()[0][0] for t in counted}
        made = path.stat()
    except (duckdb.Error, OSError, IndexError) as error:
        raise LogError(f"Pack {path.name} cannot be read: {first_line(error)}; {REPAIR}.") from error
    return {"segments": segments, "rows": rows, "schema": version, "bytes": made.st_size, "created": made.st_mtime}


def read_whole(path: Path) -> str | None:
    """What is wrong with a pack, found by reading every value of it; None when nothing is. LogError: memory is short."""
    try:
        with duckdb.connect(":memory:") as con:
            con.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS pack (READ_ONLY)")
            names = con.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'pack'").fetchall()
            for (table,) in names:
                con.execute(f"SELECT bit_xor(hash(t)) FROM pack.{table} t").fetchall()
    except duckdb.OutOfMemoryException as error:
        raise LogError(f"There is too little memory to read {path}; free some and check again.") from error
    except (duckdb.Error, OSError) as error:
        return first_line(error)
    return None


def damaged(root: Path, seen: Snapshot) -> tuple[Path, str] | None:
    """The first listed pack or sealed segment that cannot even be opened, with what is wrong; None when all can be."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in seen.packs:
        try:
            pack_entry(root / "packs" / name)
        except LogError as error:
            return root / "packs" / name, first_line(error.__cause__ or error)
    for paths in seen.sealed.values():
        for path in paths:
            try:
                pq.read_metadata(path)
            except FileNotFoundError:
                continue
            except (pa.ArrowException, OSError) as error:
                return path, first_line(error)
    return None


def rebuild_manifest(root: Path) -> tuple[Manifest, list[Path]]:
    """The manifest from the packs' own ledgers, and the packs that cannot be read.

    Newest packs first; a pack whose segments are held already is left out, and its file stays where it is.
    """
    manifest, unreadable = Manifest(), []
    for path in sorted((root / "packs").glob("*.duckdb"), reverse=True):
        try:
            entry = pack_entry(path)
        except LogError:
            unreadable.append(path)
            continue
        if not any(overlap(entry["segments"], pack["segments"]) for pack in manifest.packs.values()):
            manifest.packs[path.name] = entry
    return manifest, unreadable


def unlisted(root: Path, manifest: Manifest) -> list[Path]:
    """Whole packs that the manifest does not name."""
    return sorted(path for path in (root / "packs").glob("*.duckdb") if path.name not in manifest.packs)


class Holders:
    """Which segments lie in a listed pack that is there and can be read; each pack is opened once."""

    def __init__(self, root: Path, manifest: Manifest) -> None:
        self._root, self._manifest = root, manifest
        self._whole: set[str] = set()

    def hold(self, segment: Segment) -> bool:
        """Whether a listed pack holds it. Raises LogError when that pack cannot be read."""
        name = self._manifest.holds(segment)
        if name is None:
            return False
        if name not in self._whole:
            pack_entry(self._root / "packs" / name)
            self._whole.add(name)
        return True


def needed(root: Path, path: Path, holders: Holders) -> bool:
    """Whether an unlisted pack has a segment that is neither sealed nor in a listed pack. Raises LogError, unreadable."""
    for run, table, writer, first, last in flat(pack_entry(path)["segments"]):
        for number in range(first, last + 1):
            segment = Segment(run, table, int(writer), number)
            if not sealed_path(run_dir(root, run), segment).exists() and not holders.hold(segment):
                return True
    return False


def overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two ledgers share a segment."""
    return any(
        first <= other_last and other_first <= last
        for run, table, writer, first, last in flat(a)
        for other_first, other_last in b.get(run, {}).get(table, {}).get(writer, [])
    )


def flat(segments: dict[str, Any]) -> Iterator[tuple[str, str, str, int, int]]:
    """A ledger as rows of (run, table, writer, first, last)."""
    for run, tables in segments.items():
        for table, writers in tables.items():
            for writer, ranges in writers.items():
                for first, last in ranges:
                    yield run, table, writer, first, last


def quarantine(root: Path, paths: Iterable[Path]) -> None:
    """Move damaged files aside under a name of their own; nothing is deleted."""
    folder = root / "quarantine"
    for path in paths:
        folder.mkdir(exist_ok=True)
        target = folder / f"{path.parent.parent.name}.{path.name}"
        number = 1
        while target.exists():
            number += 1
            target = folder / f"{path.parent.parent.name}.{path.name}.{number}"
        path.rename(target)


def first_line(error: BaseException) -> str:
    """An engine's message without its stack of notes and without a full stop."""
    text = (getattr(error, "strerror", None) or str(error)).strip()
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".")
