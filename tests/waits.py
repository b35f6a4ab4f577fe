"""A wait for what only becomes true soon, such as the end of a process. A busy machine may take long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 900.0, what: str = "it") -> T:
    """Return what the condition gives once it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:.0f} s"
        time.sleep(0.05)
    return value


def runs(process: psutil.Process, word: str) -> bool:
    """Return whether the process lives and its command line has the word."""
    with contextlib.suppress(psutil.Error):
        return word in " ".join(process.cmdline())
    return False
