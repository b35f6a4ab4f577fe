"""Whether the processes that play conversations are still there.

verl waits for ever for the prompts of a rollout worker that was killed (its status stays ``running``), and says so once a
minute, so that it does not even fall silent. Each worker therefore leaves a file with its host and process id and touches
it while it lives; the launcher looks at the process where it is on the same host, and at the file's age elsewhere.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from functools import lru_cache
from pathlib import Path

import psutil

BEAT = 20.0
"""Seconds between two touches."""

LOST = 300.0
"""Seconds without a touch after which a worker on another host counts as dead: clocks and file systems may lag."""

GRACE = 15.0
"""Seconds that a worker must be dead before it counts: at the end of a stage workers go a little before the driver."""


@lru_cache(maxsize=8)
def keep_beating(folder: str) -> None:
    """Leave this process's sign in ``folder`` and keep it fresh for as long as the process lives. Once per folder."""
    path = Path(folder) / f"{socket.gethostname()}-{os.getpid()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))

    def beat() -> None:
        while path.exists():
            os.utime(path)
            time.sleep(BEAT)

    threading.Thread(target=beat, daemon=True, name="userrl-alive").start()


class Watch:
    """Looks at the signs in a folder; knows since when each worker is missed."""

    def __init__(self, folder: Path, *, grace: float = GRACE) -> None:
        self._folder = folder
        self._grace = grace
        self._missed: dict[str, float] = {}
        for sign in folder.glob("*.json"):  # of an earlier start
            sign.unlink()

    def dead(self) -> list[str]:
        """Workers (``host-pid``) that have been gone for longer than the grace."""
        now = time.monotonic()
        for sign in self._folder.glob("*.json"):
            if _alive(sign):
                self._missed.pop(sign.stem, None)
            else:
                self._missed.setdefault(sign.stem, now)
        return [name for name, since in self._missed.items() if now - since >= self._grace]


def _alive(sign: Path) -> bool:
    try:
        who = json.loads(sign.read_text())
        fresh = time.time() - sign.stat().st_mtime < LOST
    except (OSError, json.JSONDecodeError):
        return True  # being written, or just removed
    if who["host"] != socket.gethostname():
        return fresh
    try:
        return bool(psutil.Process(int(who["pid"])).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
