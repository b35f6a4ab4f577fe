"""A lock on a file (flock). The kernel drops it when its holder dies, so a kill leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def acquire(path: Path, *, wait: bool = False, shared: bool = False) -> int | None:
    """Lock a file and return its descriptor, or None if it is taken. It is held until all heirs of the descriptor close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def locked(path: Path, waiting: Callable[[], object] = lambda: None) -> Iterator[int]:
    """Wait for the lock of a file, and hold it while the block runs. Yields its descriptor. waiting: called if it is taken."""
    descriptor = acquire(path)
    if descriptor is None:
        waiting()
        descriptor = acquire(path, wait=True)
    assert descriptor is not None
    try:
        yield descriptor
    finally:
        os.close(descriptor)
