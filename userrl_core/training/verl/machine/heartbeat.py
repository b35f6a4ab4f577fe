"""Liveness of the processes that play conversations.

verl waits for ever for the prompts of a rollout worker that was killed (its status stays ``running``). It logs this
once a minute, so its output does not even stop. Each worker therefore writes a file with its host and process id and
touches it while it lives. The launcher checks the process on the same host, and the file's age elsewhere.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from functools import lru_cache
from pathlib import Path

from userrl_core.processes import is_alive

BEAT = 20.0
"""Seconds between two touches."""

LOST = 300.0
"""Seconds without a touch after which a worker on another host counts as dead: clocks and file systems may lag."""

GRACE = 15.0
"""Seconds that a worker must be dead before it counts: at the end of a stage workers exit a little before the driver."""


@lru_cache(maxsize=8)
def start_heartbeat(folder: str) -> None:
    """Write this process's heartbeat file in ``folder`` and touch it while the process lives. Once per folder."""
    path = Path(folder) / f"{socket.gethostname()}-{os.getpid()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))

    def beat() -> None:
        while path.exists():
            os.utime(path)
            time.sleep(BEAT)

    threading.Thread(target=beat, daemon=True, name="userrl-heartbeat").start()


class HeartbeatWatch:
    """A watch on the heartbeats in a folder; it remembers since when each worker has been missing."""

    def __init__(self, folder: Path, *, grace: float = GRACE) -> None:
        self._folder = folder
        self._grace = grace
        self._missed: dict[str, float] = {}
        for heartbeat in folder.glob("*.json"):  # of an earlier start
            heartbeat.unlink()

    def dead(self) -> list[str]:
        """Return the workers (``host-pid``) that have been missing for longer than the grace."""
        now = time.monotonic()
        for heartbeat in self._folder.glob("*.json"):
            if _is_beating(heartbeat):
                self._missed.pop(heartbeat.stem, None)
            else:
                self._missed.setdefault(heartbeat.stem, now)
        return [name for name, since in self._missed.items() if now - since >= self._grace]


def _is_beating(heartbeat: Path) -> bool:
    try:
        worker = json.loads(heartbeat.read_text())
        fresh = time.time() - heartbeat.stat().st_mtime < LOST
    except (OSError, json.JSONDecodeError):
        return True  # being written, or just removed
    return is_alive(int(worker["pid"])) if worker["host"] == socket.gethostname() else fresh
