"""The compactor: seals what dead writers left behind. One at a time per warehouse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warehouse.layout import Segment, run_folders, sealed_path, segments_in, writer_dir
from warehouse.lock import FolderLock
from warehouse.seal import seal


@dataclass(slots=True)
class Compaction:
    """What one call did. torn_bytes: bytes of half-written last lines that dead writers left; they held no whole row."""

    recovered: int = 0
    torn_bytes: int = 0


def compact(root: Path) -> Compaction:
    """Seal the live files of writers that are gone. Raises LogError when another compactor is at work."""
    done = Compaction()
    with FolderLock.take(root / "compactor"):
        for run in run_folders(root):
            _recover(run, done)
    return done


def _recover(run: Path, done: Compaction) -> None:
    by_writer: dict[int, list[tuple[Segment, Path]]] = {}
    for segment, path in segments_in(run, "live"):
        by_writer.setdefault(segment.writer, []).append((segment, path))
    for writer, files in by_writer.items():
        lock = FolderLock.attempt(writer_dir(run, writer))
        if lock is None:
            continue
        with lock:
            for segment, path in files:
                if not path.exists():
                    continue
                target = sealed_path(run, segment)
                if not target.exists():
                    done.torn_bytes += seal(path, target, segment.table)
                    done.recovered += 1
                path.unlink()
