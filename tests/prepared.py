"""Processes without the time of their imports: each is forked from one process that has imported what commands use.

`Popen` takes the place of `subprocess.Popen` in a test with the fixture ``prepared``, so that neither the test nor the code under
test shows a difference. What it starts is a process of its own and a child of the caller, with its own output, environment,
folder and exit status. Its command line, as the kernel shows it, is that of the prepared process.

Everything else is started as usual: other programs, and a process whose environment has other values of what is read by imports.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.fork_end import end_after
from tests.places import ROOT
from userrl.machine.home import quiet
from userrl_core.fork_server import AVAILABLE, ROOM, write_tag
from userrl_core.processes import TAGS, die_with_parent
from userrl_core.training.local.threads import SETTINGS

PACKAGES = ("flows.cli", "userrl", "warehouse", "curricula")
FURTHER = ("openai.resources.chat", "openai.types.chat", "requests", "wandb.apis.public", "wandb.sdk.launch")
"""What a stage imports with its first request and its first number."""

THREADED = ("prefect", "polars", "pyarrow")
"""Packages that start a thread when they are imported, or read settings. A fork imports them itself, as it has no threads."""

READ_BY_IMPORTS = ("PYTHON", "HF_", "TRANSFORMERS_", "OMP_", "GOMP_", "MKL_", "TORCH_", "CUDA_", "TZ")
"""First letters of environment variables."""

SANDBOX = ["-I", "-m", "warehouse.query.sandboxed"]
"""Options of the process that answers one SQL question."""

_MOST = 1 << 20
_SUBREAPER = 36
_one_at_a_time = threading.Lock()
_server: socket.socket | None = None


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """A process of Python, forked if it can be."""

    def _execute_child(  # type: ignore[override]
        self,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: bool,
        pass_fds: Sequence[int],
        cwd: Any,
        env: Mapping[str, str] | None,
        startupinfo: Any,
        creationflags: int,
        shell: bool,
        *rest: Any,
    ) -> None:
        *pipes, _, _, _, _, _, new_session, group = rest
        words = [] if isinstance(args, (str, bytes, os.PathLike)) or shell else [os.fsdecode(word) for word in args]
        environment = {**(os.environ if env is None else env)}
        is_plain = executable in (None, sys.executable) and preexec_fn in (None, die_with_parent) and group == -1
        if _server is None or not is_plain or not _is_ours(words) or not _imports_alike(words, environment):
            given = (args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell)
            super()._execute_child(*given, *rest)  # type: ignore[misc]
            return
        sys.audit("subprocess.Popen", words[0], words, cwd, env)
        request = {
            "words": words[1:],
            "environment": environment,
            "folder": str(cwd or Path.cwd()),
            "new_session": bool(new_session),
            "with_parent": preexec_fn is die_with_parent,
            "places": [0, 1, 2, *pass_fds],
        }
        ends = [own if end == -1 else end for own, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        with _one_at_a_time, _adopting():
            socket.send_fds(_server, [json.dumps(request).encode()], [*ends, *pass_fds])
            self.pid = int(_server.recv(_MOST))
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


@contextlib.contextmanager
def server() -> Iterator[None]:
    """Start the prepared process, which imports while the caller goes on, and end it."""
    global _server
    if not AVAILABLE:
        yield
        return
    _server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**quiet(), **SETTINGS, **_read(os.environ), TAGS: ROOM, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.prepared", str(theirs.fileno())]
    with theirs, _server:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        theirs.close()
        yield
    _server = None
    process.wait()


def _is_ours(words: Sequence[str]) -> bool:
    if words[1:] == SANDBOX:
        return words[0] == sys.executable
    options = words[1:] if words[1:2] != ["-u"] else words[2:]
    module = options[1] if options[:1] == ["-m"] and len(options) > 1 else None
    return words[:1] == [sys.executable] and (
        options[:1] == ["-c"] or (module or "").startswith(("flows.", "userrl.", "tests."))
    )


def _imports_alike(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether what the process imports reads the same variables as here. The SQL process imports nothing that reads any."""
    return words[1:] == SANDBOX or _read(environment) == _read(os.environ)


def _read(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that imports read, with those that a process of a run sets itself."""
    whole = quiet({**SETTINGS, **environment})
    return {name: value for name, value in whole.items() if name.startswith(READ_BY_IMPORTS)}


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Make this process the parent of a process whose parent ends meanwhile."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SUBREAPER, 0, 0, 0, 0)


def _prepare() -> None:
    """Import what commands and stages use, and read the tasks that every run is checked with."""
    from userrl.worker.main import preload

    preload()
    for name in THREADED:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in FURTHER:
        importlib.import_module(name)
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for profile in ("laptop", None):  # an evaluation of a served model has the tasks of no profile
        importlib.import_module("curricula").load("equalized-r2g", profile)
    for name in THREADED:
        del sys.modules[name]
    if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        raise RuntimeError(f"the prepared process has {threads} threads, which its forks would lack")
    gc.collect()
    gc.freeze()


def _serve(requests: socket.socket, *, is_first: bool) -> None:
    """Fork for every request until the requester is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _MOST, 64)
        if not data:
            return
        told, tells = os.pipe()
        wait, go = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(tells, str(pid).encode())
                os._exit(0)
            for descriptor in (requests.fileno(), told, tells, go):
                os.close(descriptor)
            os.read(wait, 1)
            os.close(wait)
            _become(json.loads(data), descriptors, is_first=is_first)
        os.waitpid(between, 0)  # its child now belongs to the requester
        os.write(go, b"1")
        with contextlib.suppress(OSError):
            requests.send(os.read(told, 64))
        for descriptor in (told, tells, wait, go, *descriptors):
            os.close(descriptor)


def _become(request: Mapping[str, Any], descriptors: Sequence[int], *, is_first: bool) -> NoReturn:
    """Be the process that was asked for, to its end."""

    def work() -> None:
        global _server
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
            finalizer.atexit = False  # the prepared process removes its temporary folders itself
        weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
        atexit._clear()
        if request["new_session"]:
            os.setsid()
        if is_first and request["words"] != SANDBOX:  # what it starts is forked too, from a process without its threads
            _server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                _server.close()
                _server = None
                for descriptor in descriptors:
                    os.close(descriptor)
                _serve(theirs, is_first=False)
                os._exit(0)
            theirs.close()
            subprocess.Popen = Popen  # type: ignore[misc]
        _place(descriptors, request["places"])
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        if (tag := os.environ.get(TAGS, ROOM).split()[-1]) != ROOM:
            write_tag(tag)
        if request["with_parent"]:
            die_with_parent()
        _run(request["words"])

    end_after(work)


def _place(descriptors: Sequence[int], places: Sequence[int]) -> None:
    """Give each descriptor its number, by way of numbers that none of them has."""
    global _server
    free = max(places) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, free) for descriptor in descriptors]
    if _server is not None:
        _server, former = socket.socket(fileno=fcntl.fcntl(_server.fileno(), fcntl.F_DUPFD_CLOEXEC, free)), _server
        former.close()
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, place in zip(moved, places, strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)


def _run(words: list[str]) -> None:
    """Run ``-m MODULE`` or ``-c PROGRAM`` as ``__main__``."""
    if words == SANDBOX:
        words = words[1:]
    if words[0] == "-u":
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        words = words[1:]
    kind, program, *arguments = words
    sys.argv = [kind, *arguments]
    if kind == "-m":
        sys.modules.pop(program, None)
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(program, "<string>", "exec"), main.__dict__)  # noqa: S102  the program of ``python -c``


if __name__ == "__main__":
    from tests import prepared

    prepared._prepare()
    prepared._serve(socket.socket(fileno=int(sys.argv[1])), is_first=True)
    atexit._run_exitfuncs()
    os._exit(0)  # without a look for what the interpreter leaks
