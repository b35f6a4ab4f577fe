"""Files are written beside their place and then renamed. Folders are renamed and then removed. So no reader meets a part of one."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENAMETOOLONG, ENOSPC
from pathlib import Path
from threading import get_ident
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield an open draft that becomes ``path`` when the block ends, on disk. An error leaves the file as it was.

    A link stays, and the file that it names is replaced, with its mode. A device or a pipe is written to: as root, a rename would
    replace ``/dev/null`` for all programs. A file in a folder that cannot be written is refused, although it could be overwritten.
    """
    if path.exists() and not path.is_file():  # before the links are resolved: that of /dev/stdout may name no path
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}.tmp")
    try:
        file = draft.open("wb")
    except OSError as error:
        about = "" if error.errno in (EDQUOT, ENAMETOOLONG, ENOSPC) else "nothing can be written into its folder: "
        raise OSError(error.errno, f"{about}{error.strerror}", str(path)) from None
    try:
        with file:
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8 as `replacing` does."""
    with replacing(path) as file:
        file.write(text.encode())


def remove_folder(folder: Path) -> None:
    """Remove a folder if it exists. If it is a link, only the link is removed.

    The folder is first renamed to ``.NAME.deleted``. If a kill leaves such a folder, the next removal beside it removes it.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    for leftover in folder.parent.glob(".*.deleted"):
        shutil.rmtree(leftover, ignore_errors=True)
    with suppress(FileNotFoundError):  # it does not exist, or another process removes leftovers
        shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}.deleted")))


def sync(path: Path) -> None:
    """Fsync a file or a folder, so that a rename in it survives power loss."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
