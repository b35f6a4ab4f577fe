"""TERM handling of long commands: it acts like Ctrl-C, so that trainers leave a checkpoint and no process stays."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def leave_on_term() -> None:
    """Make TERM raise SystemExit in the main thread, with exit status 143."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def exit_at_once(status: int) -> NoReturn:
    """End this process without taking the interpreter down.

    An interrupted call still holds its objects, and DuckDB would report its objects as leaks.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
