"""Untrusted SQL: one SELECT over a fixed list of files, within its time and memory, in a process of its own.

Three locks. `statements` lets through only what reads, without functions that read files or run SQL from strings. DuckDB
itself is locked afterwards: no file but the listed ones, no extension, no setting, no Python variable, no spilling. The list
alone would not do, since a listed file could be overwritten by COPY; the statement check alone would not do, since functions read
files. And since DuckDB neither counts all of its memory nor looks at the clock in every function, the kernel limits both for the
process that asks (`sandboxed`): address space, time, and no file may grow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
"""How long the process may take to say that its time is over, before it is killed."""

_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Of this process's environment; the rest may hold keys and passwords."""


_begun: list[subprocess.Popen[bytes]] = []
"""At most one process that waits for its question."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of one query, their values as JSON has them (others as text). types: DuckDB's, one for each
    column. truncated: there were more than the limit.

    as_of: Unix seconds of the list of files. notes: what is wrong with the stored rows, in sentences.
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

    seconds: from the call to the answer. memory: bytes beyond what an empty question takes. Paths of this machine in the answer
    are written from the home or the user's folder. Raises Refused with one sentence, or with DuckDB's words for SQL that is
    merely wrong; LogError for a damaged file.
    """
    check_exists(root)
    request = {
        "root": str(root.absolute()), "text": text, "params": params, "limit": limit, "seconds": seconds, "memory": memory
    }  # fmt: skip
    process = _begun.pop() if _begun else _start()
    started = time.monotonic()
    try:
        said, _ = process.communicate(json.dumps(request).encode(), timeout=seconds + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        raise Refused(too_long(seconds)) from None
    finally:
        process.kill()
        process.communicate()
    if not said:
        ended_by_clock = time.monotonic() - started >= seconds
        raise Refused(too_long(seconds) if ended_by_clock else too_large(memory))
    answer = json.loads(said)
    if "error" in answer:
        raise getattr(errors, answer["error"], Refused)(answer["message"])
    return Answer(**answer)


def begin() -> None:
    """Start the process of the next question now: while it imports DuckDB, the caller has imports of its own to do."""
    _begun.append(_start())


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
    """The sentence about time."""
    return f"The query took longer than {seconds:g} s; narrow it, for example to one run."


def too_large(memory: int) -> str:
    """The sentence about memory."""
    return f"The query needs more than {memory / 1e6:.0f} MB of memory; narrow it, or aggregate before joining."
