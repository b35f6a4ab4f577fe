"""Files that a person named for a command's output."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from userrl_core.errors import ConfigError, UserRLError


def check_output(path: Path) -> None:
    """Raise ConfigError, before long work, if its file cannot be written."""
    with writing(path):
        if path.is_dir():
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Raise ConfigError, with the path and the reason, where the file or folder cannot be written."""
    try:
        yield
    except OSError as error:
        if isinstance(error, UserRLError):
            raise
        raise ConfigError(
            "file.not_writable", f"{path} cannot be written ({error.strerror or error}). Choose another place."
        ) from None
