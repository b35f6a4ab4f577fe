"""A folder that imported runs are written in, which no reader looks into.

A file that turns out to be broken, a full disk or a killed process therefore leaves no part of a run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from userrl_core.errors import LogError
from warehouse.files.layout import sync
from warehouse.files.lock import FolderLock

STAGING = "importing"
"""The folder of the warehouse. It also holds the lock of the importing process."""


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """Yield the folder. Its folders ``run=...`` become runs when the block ends without an error, else they are removed.

    What a killed import left is removed first. Raises LogError when the folder cannot be written.
    """
    place = root / STAGING
    with FolderLock.wait(place):
        _empty(place)
        try:
            yield place
            runs = root / "runs"
            runs.mkdir(parents=True, exist_ok=True)
            for folder in sorted(place.glob("run=*")):
                sync(folder)
                folder.rename(runs / folder.name)
            sync(runs)
        except OSError as error:
            if isinstance(error, LogError):
                raise
            raise LogError(
                "log.cannot_write", f"The import cannot be written to {root}: {error.strerror or error}. Free space."
            ) from error
        finally:
            _empty(place)


def _empty(place: Path) -> None:
    for folder in place.glob("run=*"):
        shutil.rmtree(folder, ignore_errors=True)
