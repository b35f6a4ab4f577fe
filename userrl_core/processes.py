"""Child processes that cannot be lost: their parent may be killed at any moment, and they must not linger.

A child leads its own session, writes to a file that is tailed here, and carries a random tag in its environment. Its
descendants inherit the tag, even those that leave its process group (Ray starts daemons in their own sessions). The
tag is written to disk before the child starts. The next process then finds every leftover by the tag: a recycled
process id never carries it. In a copy of the folder the tag is not the copy's: the child works in the original.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from userrl_core.errors import LINE, TrainingError, read_line
from userrl_core.json_files import read_json, write_json

TAGS = "USERRL_CHILD_TOKEN"
"""The environment variable with a process's tags: first the enclosing processes' tags, then its own."""

RECORD = "child.json"
"""A file in a child's folder with its tag, the folder's path, and the scratch folder to remove with it."""

_LAST_BYTES = 16384
_RAISED = re.compile(r"\b(?:\w+\.)*\w*(?:Error|Exception): \S.*$")
_PR_SET_PDEATHSIG = 1


class Started(Protocol):
    """The interface of a started process, such as subprocess.Popen. It leads its own process group."""

    @property
    def pid(self) -> int:
        """Return its id."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status, negative for a signal. Raises subprocess.TimeoutExpired."""

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""


class Spawn(Protocol):
    """A way to start a tagged process: `spawn`, or a fork of a process that has imported everything."""

    def __call__(
        self,
        command: Sequence[str],
        *,
        output: Path,
        env: Mapping[str, str] | None,
        tag: str,
        keep_open: Sequence[int],
    ) -> Started:
        """Start the process and append its output to ``output``."""


class ProcessDied(TrainingError):
    """The child ended without an error message (killed, out of memory, a bug): starting it again may help."""


def run(
    command: Sequence[str],
    folder: Path,
    *,
    name: str,
    env: Mapping[str, str] | None = None,
    on_tick: Callable[[], None] = lambda: None,
    keep_open: Sequence[int] = (),
    scratch: Path | None = None,
    grace: float = 0.0,
    stall: float = math.inf,
    poll: float = 0.2,
    by: Spawn | None = None,
) -> None:
    """Run a command to its end, with its record and ``output.txt`` in ``folder``. Nothing that it started outlives this call.

    name: of the child, in error messages. env: variables in addition to this process's own. on_tick: called every
    ``poll`` seconds while it runs; an exception from it stops the child too. keep_open: descriptors that it inherits
    (its slot's lock). scratch: its scratch folder, removed with it. grace: seconds between TERM and KILL when this
    process is interrupted. stall: seconds without any output after which it counts as stuck. by: the way to start it.
    Leftovers of an earlier child of the same folder are killed first.

    Raises TrainingError with the child's own error message when it ends with a status other than 0, or when it is
    stuck. Raises ProcessDied when it left no message.
    """
    child = start(command, folder, env=env, keep_open=keep_open, scratch=scratch, by=by)
    silent_since, size = time.monotonic(), child.began
    try:
        while (status := _wait(child.process, poll)) is None:
            on_tick()
            output_bytes = child.output.stat().st_size
            if output_bytes != size:
                silent_since, size = time.monotonic(), output_bytes
            elif time.monotonic() - silent_since > stall:
                tail = last_words(child.output, child.began)
                raise TrainingError(
                    "process.stalled", f"{name} wrote no output for {stall:g} s and was stopped. {tail}"
                )
        on_tick()
    except BaseException:  # a cancel arrives as a BaseException; whatever it is, the child must not outlive us
        child.stop(grace)
        raise
    reap(folder)
    if status:
        sentence = next((line for line in reversed(_lines(child.output, child.began)) if line.startswith(LINE)), None)
        if sentence is not None:
            report = read_line(sentence)
            raise TrainingError(report.code, report.sentence)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise ProcessDied("process.died", f"{name} {how}. {last_words(child.output, child.began)}")


@dataclass(frozen=True, slots=True)
class Child:
    """A process with a record in ``folder``. began: offset of its output in the file ``output``."""

    process: Started
    folder: Path
    output: Path
    began: int

    def stop(self, grace: float) -> None:
        """Send TERM, then KILL after ``grace`` seconds, and remove everything it left."""
        stop_group(self.process, grace)
        reap(self.folder)


def start(
    command: Sequence[str],
    folder: Path,
    *,
    output: str = "output.txt",
    env: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
    scratch: Path | None = None,
    by: Spawn | None = None,
) -> Child:
    """Start a tagged child and write its record; leftovers of an earlier one of the same folder are killed first."""
    folder.mkdir(parents=True, exist_ok=True)
    reap(folder)
    tag = secrets.token_hex(16)
    write_record(folder, tag, command=list(command), started=time.time(), scratch=str(scratch) if scratch else None)
    path = folder / output
    began = path.stat().st_size if path.exists() else 0
    process = (by or spawn)(command, output=path, env=env, tag=tag, keep_open=keep_open)
    return Child(process, folder, path, began)


def spawn(
    command: Sequence[str],
    *,
    output: Path | None = None,
    env: Mapping[str, str] | None = None,
    tag: str | None = None,
    keep_open: Sequence[int] = (),
    with_parent: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that Ctrl-C reaches it through its parent only.

    output: a file to append its output to; None uses this process's output. with_parent: the kernel ends the process
    with the thread that called this. It is for programs that do not call `die_with_parent` themselves.
    """
    environment = {**os.environ, **(env or {})}
    if tag is not None:
        environment[TAGS] = " ".join([*environment.get(TAGS, "").split(), tag])
    with contextlib.ExitStack() as files:
        sink = None if output is None else files.enter_context(output.open("ab"))
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=None if sink is None else subprocess.STDOUT,
            env=environment,
            pass_fds=tuple(keep_open),
            start_new_session=True,
            preexec_fn=die_with_parent if with_parent else None,
        )
    if tag is not None:
        _await_tags(process)
    return process


def _await_tags(process: subprocess.Popen[bytes], seconds: float = 1.0) -> None:
    """Wait until the kernel shows the environment of a new process, which is empty for a moment. `tagged` reads it."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(psutil.Error, OSError):
        while process.poll() is None and not psutil.Process(process.pid).environ() and time.monotonic() < deadline:
            time.sleep(0.001)


def die_with_parent() -> None:
    """In a child: be terminated by the kernel when the parent dies (Linux; elsewhere only `reap` does this)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == 1 and TAGS in os.environ:  # the parent died before the call
        os.kill(os.getpid(), signal.SIGTERM)


def end_with_parent(poll: float = 1.0, grace: float = 10.0) -> None:
    """End this process when its parent is gone: TERM, and KILL after ``grace`` seconds. poll: seconds between two looks.

    Unlike `die_with_parent`, it does not act when only the thread that started this process has ended.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(poll)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def stop_group(process: Started, grace: float) -> None:
    """Send TERM to the process's group, wait up to ``grace`` seconds for the process, then KILL the rest of the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write_record(folder: Path, tag: str, **more: Any) -> None:
    """Write the record of a child with this tag before it starts."""
    write_json(folder / RECORD, {"token": tag, "folder": str(folder.resolve()), **more})


def _record(folder: Path) -> dict[str, Any] | None:
    """Return the record of this folder's child. None if there is none, or if this is a copy of a folder that has one."""
    record = read_json(folder / RECORD)
    if record is None or "token" not in record:
        return None
    original = Path(record.get("folder", folder)).resolve()  # records of earlier versions name no folder
    return record if original == folder.resolve() or not (original / RECORD).exists() else None


def reap(folder: Path, grace: float = 0.0) -> int:
    """Kill the leftovers of this folder's child and remove its scratch folder. Return the number of killed processes.

    grace: seconds between TERM and KILL.
    """
    record = _record(folder)
    if record is None:
        return 0
    killed = _kill(str(record["token"]), grace)
    if record.get("scratch"):
        shutil.rmtree(record["scratch"], ignore_errors=True)
    (folder / RECORD).unlink(missing_ok=True)
    return killed


def living(folder: Path) -> bool:
    """Return True if any process of this folder's child is alive."""
    record = _record(folder)
    return record is not None and bool(tagged(str(record["token"])))


def tagged(tag: str) -> list[psutil.Process]:
    """Return living processes of this user that carry the tag; never this one."""
    processes = []
    for process in psutil.process_iter():
        try:
            carries = process.pid != os.getpid() and tag in process.environ().get(TAGS, "").split()
            if carries and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return processes


def has_open(pid: int, path: Path) -> bool:
    """Return True if the process with this id has the file open. One that got a recycled id, or that has this id on another
    machine or in another container, does not.
    """
    with contextlib.suppress(psutil.Error):
        return os.path.realpath(path) in {file.path for file in psutil.Process(pid).open_files()}
    return False


def is_alive(pid: int) -> bool:
    """Return True if the process exists and is not a zombie. A recycled id counts as alive."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def last_words(output: Path, began: int = 0, count: int = 12) -> str:
    """Return the last exception in a child's output, the path of the whole output, and its last lines."""
    lines = _lines(output, began)
    if not lines:
        return f"Its output ({output}) is empty."
    # The exception first: a flow shows one line, and what follows a traceback is often some other process's chatter.
    raised = next((match[0] for line in reversed(lines) if (match := _RAISED.search(line))), None)
    where = f"{raised[:300]} (output: {output})." if raised else f"Output: {output}."
    return "\n".join([where, "Its last lines:", *lines[-count:]])


def _lines(output: Path, began: int) -> list[str]:
    with output.open("rb") as file:
        file.seek(max(began, output.stat().st_size - _LAST_BYTES))
        return [line.rstrip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]


def _kill(tag: str, grace: float) -> int:
    """End every process with the tag, and processes that they start while being ended."""
    killed: set[int] = set()
    for _ in range(5):
        processes = tagged(tag)
        if not processes:
            break
        killed |= {process.pid for process in processes}
        if grace:
            _signal(processes, signal.SIGTERM)
            _, processes = psutil.wait_procs(processes, timeout=grace)
        _signal(processes, signal.SIGKILL)
        psutil.wait_procs(processes, timeout=5.0)
    return len(killed)


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _wait(process: Started, seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
