"""A folder that imported runs are written in, which no reader looks into.

A file that turns out to be broken, a full disk or a killed process therefore leaves no part of a run, and of a file with
several runs either all or none.
"""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from userrl_core.errors import ConfigError, LogError
from userrl_core.file_lock import locked
from userrl_core.replaced_file import sync
from warehouse.files.layout import ARRIVING, STAGING, arriving, write_atomically


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """Yield the folder. Its folders ``run=...`` become runs when the block ends without an error, else they are removed.

    What a killed import left is finished or removed first. Raises LogError when the folder cannot be written.
    """
    staging_folder = root / STAGING
    with locked(staging_folder / "lock", lambda: print("waiting for another import", file=sys.stderr)):
        _move(root)
        _empty(staging_folder)
        try:
            yield staging_folder
            folders = sorted(staging_folder.glob("run=*"))
            for folder in folders:
                sync(folder)
            for folder in folders:
                # A run of this id may have begun since its first conversation was read.
                if (target := root / "runs" / folder.name).is_dir() and any(target.iterdir()):
                    raise ConfigError(
                        "import.run_exists", f"The folder {target} is already there. Nothing was imported."
                    )
            if folders:
                write_atomically(root / ARRIVING, "\n".join(folder.name for folder in folders).encode())
                _move(root)
        except OSError as error:
            if isinstance(error, LogError):
                raise
            raise LogError(
                "log.cannot_write", f"The import cannot be written to {root}: {error.strerror or error}. Free space."
            ) from error
        finally:
            if not (root / ARRIVING).exists():
                _empty(staging_folder)


def finish(root: Path) -> None:
    """Finish an import that was killed while its runs were being moved. Until then no reader sees any of them."""
    if (root / ARRIVING).exists():
        with locked(root / STAGING / "lock"):
            _move(root)


def _move(root: Path) -> None:
    """Move the arriving runs, and make all of them visible at once."""
    runs = root / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for name in sorted(arriving(root)):
        if (root / STAGING / name).exists():
            try:
                (root / STAGING / name).rename(runs / name)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                # The run that began here at this moment stays, and the copy goes: otherwise no reader would see either.
                print(f"{name} was not imported: a run of this id began here", file=sys.stderr)
    sync(runs)
    (root / ARRIVING).unlink(missing_ok=True)
    sync(root / STAGING)


def _empty(staging_folder: Path) -> None:
    for folder in staging_folder.glob("run=*"):
        shutil.rmtree(folder, ignore_errors=True)
