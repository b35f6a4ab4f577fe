"""One Prefect server for every `make run` of a home that works at the same time: it ends with the last of them.

No command owns the server, or its end would be the others' too. A supervisor does, a process of its own, and three lock files in
``$USERRL_HOME/launch`` say the rest; the kernel drops a lock when its holder dies, so kill -9 of anyone leaves nothing behind:

    <port>.users    shared by every command while it works
    <port>.keeper   held by the supervisor while the server lives
    <port>.gate     held while someone looks whether there is a server, starts one, or stops it
"""

from __future__ import annotations

import contextlib
import fcntl
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
from userrl_core.processes import spawn, stop_group

LOOK_SECONDS = 0.5
STOP_SECONDS = 2.0
"""Until the server is killed: what it keeps is in its database, and nobody who asked it to end waits for more."""


@dataclass(frozen=True, slots=True)
class SharedServer:
    """The lock files of the server at one port."""

    port: int

    def file(self, name: str) -> Path:
        """One of them; its folder is made."""
        folder = home() / "launch"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.port}.{name}"

    @contextlib.contextmanager
    def in_use(self, begin: Callable[[], None]) -> Iterator[None]:
        """The server is there until this block ends, whoever else comes and goes.

        begin: finds the server or starts a supervisor; called while nobody else starts or stops one.
        """
        user = -1
        try:
            with self._gate():
                user = os.open(self.file("users"), os.O_RDWR | os.O_CREAT, 0o644)
                fcntl.flock(user, fcntl.LOCK_SH)
                begin()
            yield
        finally:
            with self._gate():
                if user >= 0:
                    os.close(user)
                if self._unused():
                    self._stop()

    def supervise(self, command: list[str]) -> int:
        """Run the server until nobody uses it, or until SIGTERM. Returns its exit status."""
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
                        # Within the gate: whoever comes now waits, and then finds neither a dying server nor its supervisor.
                        signal.signal(signal.SIGTERM, signal.SIG_IGN)
                        end.close()
        return server.returncode

    @contextlib.contextmanager
    def _gate(self, *, wait: bool = True) -> Iterator[bool]:
        """Whether the gate is ours; always, unless ``wait`` is off."""
        descriptor = os.open(self.file("gate"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            entered = True
        except BlockingIOError:
            entered = False
        try:
            yield entered
        finally:
            os.close(descriptor)

    def _unused(self) -> bool:
        descriptor = lock(self.file("users"))
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is not None

    def _stop(self) -> None:
        """Ask the supervisor to end, and wait for it."""
        path = self.file("keeper")
        deadline = time.monotonic() + 2 * STOP_SECONDS
        asked = False
        while held(path) and time.monotonic() < deadline:
            pid = holder_pid(path)
            if pid is not None and not asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                asked = True
            time.sleep(0.05)


def _end(server: subprocess.Popen[bytes], own_lock: int) -> None:
    """The server's end, then the supervisor's: what its lock says is true at any moment."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stop_group(server, STOP_SECONDS)
    os.ftruncate(own_lock, 0)  # nobody may take our process id for a later supervisor's
    os.close(own_lock)


def _stop_waiting(number: int, frame: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(SharedServer(int(sys.argv[1])).supervise(sys.argv[2:]))
