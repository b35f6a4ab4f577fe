"""A process that imports a worker's modules once and forks a worker per job: torch is imported once a run, not once a stage.

A forked worker behaves like a started one: it is a separate process with its own session, output, tag and exit
status, and killing it does not harm the others. Importing starts no OpenMP thread, so the copy computes the same
sums. Linux and CPU only: a CUDA context does not survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from userrl_core.processes import TAGS, spawn, stop_group

AVAILABLE = sys.platform.startswith("linux") and hasattr(os, "pidfd_open")

ROOM = "0" * 32
"""A placeholder in the environment, overwritten with a fork's tag. `processes.tagged` reads a process's environment
from the kernel, which shows memory that the fork inherited from its parent.
"""

_MAX_BYTES, _MAX_DESCRIPTORS = 1 << 20, 64
_PID, _STATUS = struct.Struct("i"), struct.Struct("i")
_ENV_START, _ENV_END = 49, 50
"""Fields of /proc/self/stat, counted from 0."""


class Fork:
    """A forked worker, with the part of `subprocess.Popen` that `processes` uses."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self._status = status
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
            with self._status:
                status_bytes = self._status.recv(_STATUS.size)
            # Without a word the server died, and the kernel ends its forks.
            self._code = _STATUS.unpack(status_bytes)[0] if status_bytes else -signal.SIGKILL
        return self._code

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None


class ForkServer:
    """A server of forks of ``module``: each fork calls its ``main(arguments)``. ``preload()`` of the module is called
    once, before the first.

    The constructor returns at once. A fork requested earlier waits until everything is imported.
    """

    def __init__(self, module: str, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests, self._environment = ours, dict(env)
        command = [sys.executable, "-u", "-m", module, "--fork-server", str(theirs.fileno())]
        with theirs:
            self._process = spawn(command, env=env, tag=ROOM, keep_open=[theirs.fileno()], with_parent=True)

    def spawn(
        self,
        command: Sequence[str],
        *,
        output: Path,
        env: Mapping[str, str] | None = None,
        tag: str,
        keep_open: Sequence[int] = (),
    ) -> Fork:
        """Fork a worker, with the interface of `processes.spawn`. Only the last element of the command is used, as
        the worker's argument. Raises OSError when the server is gone.
        """
        environment = {**os.environ, **(env or {})}
        environment[TAGS] = " ".join([*environment.get(TAGS, "").split(), tag])
        request = json.dumps({"arguments": list(command[-1:]), "environment": environment, "tag": tag}).encode()
        ours, theirs = socket.socketpair()
        with theirs, output.open("ab") as sink:
            socket.send_fds(self._requests, [request], [theirs.fileno(), sink.fileno(), *keep_open])
        pid_bytes = ours.recv(_PID.size)
        if not pid_bytes:
            ours.close()
            raise ConnectionResetError("the fork server is gone")
        return Fork(_PID.unpack(pid_bytes)[0], ours)

    def close(self) -> None:
        """End the server and all remaining forks."""
        self._requests.close()
        stop_group(self._process, 0.0)


def serve(descriptor: int, main: Callable[[list[str]], int]) -> None:
    """Fork for every request until the requester is gone. Call with everything imported and no thread started."""
    gc.freeze()  # the collector would otherwise write to, and so copy, what forks share
    requests = socket.socket(fileno=descriptor)
    forks: dict[int, tuple[int, socket.socket]] = {}
    """Keyed by the descriptor that becomes readable when a fork ends: its process id and the socket for its status."""
    with selectors.DefaultSelector() as ready:
        ready.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is requests:
                    data, descriptors, _, _ = socket.recv_fds(requests, _MAX_BYTES, _MAX_DESCRIPTORS)
                    if not data:
                        return
                    status, sink, *inherited = descriptors
                    pid = os.fork()
                    if pid == 0:
                        requests.close()
                        for pidfd, (_, other) in forks.items():
                            other.close()
                            os.close(pidfd)
                        os.close(status)
                        _become(json.loads(data), sink, main)
                    pidfd = os.pidfd_open(pid)
                    forks[pidfd] = (pid, socket.socket(fileno=status))
                    ready.register(pidfd, selectors.EVENT_READ)
                    for number in (sink, *inherited):
                        os.close(number)
                    _tell(forks[pidfd][1], _PID.pack(pid))
                else:
                    ready.unregister(key.fd)
                    pid, where = forks.pop(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with where:
                        _tell(where, _STATUS.pack(code))


def _tell(where: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):  # whoever asked does not want to know any more
        where.send(message, socket.MSG_NOSIGNAL)


def _become(request: Mapping[str, Any], sink: int, main: Callable[[list[str]], int]) -> None:
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.close(nothing)
        os.close(sink)
        write_tag(request["tag"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv[1:] = request["arguments"]
        code = main(request["arguments"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  what an interpreter does with what nobody caught
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def write_tag(tag: str) -> None:
    """Write the tag where the kernel reads this process's environment."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # from the third field on
    start, end = int(fields[_ENV_START - 2]), int(fields[_ENV_END - 2])
    at = ctypes.string_at(start, end - start).find(f"{ROOM}\0".encode())
    if len(tag) != len(ROOM) or at < 0:
        raise ValueError("there is no room for this process's tag")
    ctypes.memmove(start + at, tag.encode(), len(tag))
