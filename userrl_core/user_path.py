"""Paths as people write them, and the files that they name."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import BinaryIO


def user_path(text: str | Path) -> Path:
    """Return a path with a leading ``~`` expanded. ``~name`` of no user stays: no such file exists, as its reader says."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def open_file(path: Path) -> BinaryIO:
    """Open a file to read its bytes. Raises OSError, also for a pipe or a device, which might never end."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name has a NUL character", str(path))
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device; give a file with the same contents", str(path))
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        if path.is_symlink():
            error.strerror = f"it is a link to {path.readlink()}, which does not exist"
        raise


def no_folder(path: Path) -> str:
    """Return why a path is no folder that can be read; "" for a folder."""
    try:
        return "" if stat.S_ISDIR(path.stat().st_mode) else os.strerror(errno.ENOTDIR)
    except (OSError, ValueError) as error:  # ValueError: a name with NUL
        return getattr(error, "strerror", None) or str(error)


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8, with line ends as ``\\n``. Raises OSError as `open_file` does, and UnicodeDecodeError."""
    with io.TextIOWrapper(open_file(path), encoding="utf-8") as file:
        return file.read()
