"""INT and TERM of long commands: trainers leave a checkpoint, no process stays, and the command ends with a sentence."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


def leave_on_term() -> None:
    """Make TERM raise SystemExit in the main thread, with exit status 143."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


@contextmanager
def stoppable(sentence: str) -> Iterator[None]:
    """End the process with this sentence on stderr if INT or TERM stops it.

    The exit status is 130 or 143. A second signal ends the process at once. INT counts also in the background, where the ``&`` of a
    script makes a process ignore it. What is running may turn the signal into an error of its own, as DuckDB does. So the signal
    decides, and not the error.
    """
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        if received:
            exit_at_once(128 + number)
        received.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except BaseException as error:
        if not received and not isinstance(error, KeyboardInterrupt):
            raise
        print(f"\n{sentence}", file=sys.stderr)
        exit_at_once(128 + (received or [signal.SIGINT])[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_at_once(status: int) -> NoReturn:
    """End this process without taking the interpreter down.

    An interrupted call still holds its objects, and DuckDB would report its objects as leaks.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
