"""Files that a person named for a command's output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from userrl_core.errors import ConfigError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise ConfigError, with the path and the reason, where the file or folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            "file.not_writable", f"{path} cannot be written ({error.strerror or error}). Choose another place."
        ) from None
