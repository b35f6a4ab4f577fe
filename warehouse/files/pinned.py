"""Links that hold files in place for a slow query while writers seal and pack them.

A query over many active runs can take longer than any of its files stays in place. Hard links to the files of a
snapshot need no copy. A file's bytes outlive its removal while a link exists.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Set
from pathlib import Path

from warehouse.files.layout import Snapshot, take_snapshot

FOLDER = "pinned"
STALE_SECONDS = 3600.0
"""Age of a killed reader's leftovers at their removal; queries are always faster."""

_TRIES = 100


@contextlib.contextmanager
def pinned(root: Path, runs: Set[str] | None = None) -> Iterator[tuple[Snapshot, Snapshot]]:
    """Yield a current snapshot, and the same one of links that stay until the context ends.

    Where links cannot be made (a read-only warehouse, a file system without them) both are the plain snapshot.
    """
    folder = _folder(root)
    try:
        yield _linked(root, runs, folder) if folder else _plain(root, runs)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _plain(root: Path, runs: Set[str] | None) -> tuple[Snapshot, Snapshot]:
    snapshot = take_snapshot(root, runs)
    return snapshot, snapshot


def _folder(root: Path) -> Path | None:
    """Create a folder for links inside the warehouse, because a link cannot cross file systems."""
    try:
        (root / FOLDER).mkdir(exist_ok=True)
        for leftover in (root / FOLDER).iterdir():
            with contextlib.suppress(FileNotFoundError):
                if leftover.stat().st_mtime < time.time() - STALE_SECONDS:
                    shutil.rmtree(leftover, ignore_errors=True)
        return Path(tempfile.mkdtemp(dir=root / FOLDER))
    except OSError:
        return None


def _linked(root: Path, runs: Set[str] | None, folder: Path) -> tuple[Snapshot, Snapshot]:
    for _ in range(_TRIES):
        snapshot = take_snapshot(root, runs)
        try:
            live, sealed = ({table: [_link(p, folder) for p in files] for table, files in form.items()}
                            for form in (snapshot.live, snapshot.sealed))  # fmt: skip
        except FileNotFoundError:
            continue  # moved between list and link; links that were made are found again
        except OSError:
            break
        return snapshot, Snapshot(live, sealed, snapshot.packs, snapshot.runs)
    return _plain(root, runs)


def _link(path: Path, folder: Path) -> Path:
    """Return the link, at the same path under the folder as the file's under ``runs``."""
    link = folder / path.relative_to(path.parents[2])
    link.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.link(path, link)
    return link
