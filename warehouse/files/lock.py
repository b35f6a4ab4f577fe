"""Advisory locks on a file in a folder: held by a living process, released by the system the moment it dies."""

from __future__ import annotations

import os
from pathlib import Path

from userrl_core.errors import LogError
from userrl_core.file_lock import acquire


class FolderLock:
    """An exclusive lock on ``folder/lock``. While it is held, no other descriptor can take it, even of the same process."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    @classmethod
    def take(cls, folder: Path) -> FolderLock:
        """Take the lock at once. Raises LogError when another process holds it."""
        lock = cls.take_if_free(folder)
        if lock is None:
            raise LogError("warehouse.busy", f"{folder} is in use by another process. Wait for it to end.")
        return lock

    @classmethod
    def take_if_free(cls, folder: Path) -> FolderLock | None:
        """Take the lock, or return None when another process holds it."""
        fd = acquire(folder / "lock")
        return None if fd is None else cls(fd)

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
