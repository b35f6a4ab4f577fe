"""One Prefect server shared by all simultaneous `make run` commands of a home. It ends with the last of them.

The server belongs to a separate supervisor process, so that the end of one command does not end it for the others. Three
lock files in ``$USERRL_HOME/launch`` hold the state. The kernel drops a lock when its holder dies, so kill -9 leaves
nothing behind:

    <port>.users    shared by every command while it works
    <port>.keeper   held by the supervisor while the server lives
    <port>.gate     held by a process that looks for the server, starts it, or stops it
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from userrl.machine.home import home
from userrl.machine.slots import held, holder_pid, lock
from userrl_core.file_lock import acquire
from userrl_core.processes import has_open, spawn, stop_group

LOOK_SECONDS = 0.5
STOP_SECONDS = 2.0
"""Seconds until the server is killed. Its data is in its database, so waiting longer gains nothing."""


@dataclass(frozen=True, slots=True)
class SharedServer:
    """The lock files of the server at one port."""

    port: int

    def file(self, name: str) -> Path:
        """Return the path of one lock file."""
        return home() / "launch" / f"{self.port}.{name}"

    @contextlib.contextmanager
    def in_use(self, begin: Callable[[], None]) -> Iterator[None]:
        """Keep the server alive until this block ends, whatever other commands do.

        begin: finds the server or starts a supervisor. No other command starts or stops one during the call.
        """
        user = None
        try:
            with self._gate():
                user = acquire(self.file("users"), wait=True, shared=True)
                begin()
            yield
        finally:
            with self._gate():
                if user is not None:
                    os.close(user)
                if self._unused():
                    self._stop()

    def supervise(self, command: list[str]) -> int:
        """Run the server until no command uses it, or until SIGTERM. Returns its exit status."""
        own_lock = lock(self.file("keeper"))
        if own_lock is None:
            return 1
        signal.signal(signal.SIGTERM, _stop_waiting)
        server = spawn(command, with_parent=True)
        with contextlib.ExitStack() as end:
            end.callback(_end, server, own_lock)
            while server.poll() is None:
                time.sleep(LOOK_SECONDS)
                with self._gate(wait=False) as entered:
                    if entered and self._unused():
                        # Inside the gate: a new command waits, and then finds neither a dying server nor its supervisor.
                        signal.signal(signal.SIGTERM, signal.SIG_IGN)
                        end.close()
        return server.returncode

    @contextlib.contextmanager
    def _gate(self, *, wait: bool = True) -> Iterator[bool]:
        """Yield whether we hold the gate; always true, unless ``wait`` is off."""
        descriptor = acquire(self.file("gate"), wait=wait)
        try:
            yield descriptor is not None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _unused(self) -> bool:
        descriptor = lock(self.file("users"))
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is not None

    def _stop(self) -> None:
        path = self.file("keeper")
        deadline = time.monotonic() + 2 * STOP_SECONDS
        signalled = False
        while held(path) and time.monotonic() < deadline:
            pid = holder_pid(path)
            if pid is not None and not signalled and has_open(pid, path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                signalled = True
            time.sleep(0.05)


def _end(server: subprocess.Popen[bytes], own_lock: int) -> None:
    """End the server before the supervisor, so that the supervisor's lock is always right."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stop_group(server, STOP_SECONDS)
    os.ftruncate(own_lock, 0)  # or our process id could be taken for a later supervisor's
    os.close(own_lock)


def _stop_waiting(number: int, frame: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(SharedServer(int(sys.argv[1])).supervise(sys.argv[2:]))
