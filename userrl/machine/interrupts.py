"""TERM handling of long commands: it acts like Ctrl-C, so that trainers leave a checkpoint and no process stays."""

from __future__ import annotations

import signal
import sys
from types import FrameType


def leave_on_term() -> None:
    """Make TERM raise SystemExit in the main thread, with exit status 143."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
