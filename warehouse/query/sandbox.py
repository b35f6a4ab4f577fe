"""Untrusted SQL: one SELECT over a fixed list of files, with limits on time and memory, in a separate process.

There are three locks. `statements` accepts only statements that read, without functions that read files or run SQL
from strings. DuckDB itself is then locked: only the listed files, no extension, setting, Python variable or spilling.
The file list alone is not enough, because COPY could overwrite a listed file. The statement check alone is not
enough, because functions read files. Third, the kernel limits the querying process (`sandboxed`): address space,
time, and no file may grow. DuckDB neither counts all of its memory nor checks the clock in every function.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from userrl_core import errors
from userrl_core.errors import Refused
from warehouse.files.layout import check_exists

SECONDS = 30.0
MEMORY = 2 * 10**9
ROWS = 10_000
GRACE_SECONDS = 0.5
"""Seconds for the process to report its time-out before it is killed."""

AT_ONCE = 2
"""Most questions that one process answers at the same time, so that their memory is limited together."""

_slots = threading.BoundedSemaphore(AT_ONCE)

_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Environment variables passed on; the others may hold keys and passwords."""


_started: list[subprocess.Popen[bytes]] = []
"""At most one process that waits for its query."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of one query, with values as in JSON (others as text). types: DuckDB's type of each column. truncated:
    True if there were more rows than the limit.

    as_of: Unix seconds of the list of files. notes: faults of the stored rows, in sentences.
    """

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool
    as_of: float
    notes: list[str]


def ask(
    root: Path, text: str, *, limit: int = ROWS, seconds: float = SECONDS, memory: int = MEMORY, **params: Any
) -> Answer:
    """Answer one untrusted query.

    A query waits up to `seconds` for one of `AT_ONCE` places, and then has `seconds` for its answer. memory: bytes beyond
    the need of an empty query. Paths of this machine in the answer are written relative to the home or the user's
    folder. Raises Refused with one sentence, or with DuckDB's message for wrong SQL; LogError for a damaged file.
    """
    check_exists(root)
    request = {
        "root": str(root.absolute()), "text": text, "params": params, "limit": limit, "seconds": seconds, "memory": memory
    }  # fmt: skip
    if not _slots.acquire(timeout=seconds):
        raise Refused(
            "warehouse.busy", f"{AT_ONCE} other questions are still being answered. Ask again when they have ended."
        )
    try:
        process = _started.pop() if _started else _start()
        started = time.monotonic()
        try:
            output, _ = process.communicate(json.dumps(request).encode(), timeout=seconds + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            raise Refused("sql.too_long", too_long(seconds)) from None
        finally:
            process.kill()
            process.communicate()
    finally:
        _slots.release()
    if not output:
        ended_by_clock = time.monotonic() - started >= seconds
        if ended_by_clock:
            raise Refused("sql.too_long", too_long(seconds))
        raise Refused("sql.too_large", too_large(memory))
    answer = json.loads(output)
    if "error" in answer:
        raise getattr(errors, answer["error"], Refused)(answer["code"], answer["message"])
    return Answer(**answer)


def begin() -> None:
    """Start the process of the next query now: it imports DuckDB while the caller does its own imports."""
    _started.append(_start())


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "warehouse.query.sandboxed"],
        cwd="/",
        env={name: os.environ[name] for name in _KEPT if name in os.environ} | {"HOME": ".", "MALLOC_ARENA_MAX": "2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def too_long(seconds: float) -> str:
    """Return the message about time."""
    return f"The query took longer than {seconds:g} s. Narrow it, for example to one run."


def too_large(memory: int) -> str:
    """Return the message about memory."""
    return f"The query needs more than {memory / 1e6:.0f} MB of memory. Narrow it, or aggregate before joining."
