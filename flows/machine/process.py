"""A trainer as a child process that cannot be lost (a flow may be killed at any moment; its trainer must not linger).

The child leads its own process group, writes to a file that is tailed here, and carries a random token in its environment.
The token is written down before the child starts, so that whoever comes next finds every leftover by the token alone:
a recycled process id never carries it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from userrl_core.bearers import bearers_of
from userrl_core.errors import TrainingError

TOKEN = "USERRL_CHILD_TOKEN"
_PR_SET_PDEATHSIG = 1


class TrainerDied(TrainingError):
    """The child ended without saying why (killed, out of memory, a bug): starting it again may help."""


def run_child(
    command: Sequence[str],
    *,
    folder: Path,
    on_tick: Callable[[], None] = lambda: None,
    env: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
    grace: float = 20.0,
    poll: float = 0.2,
) -> None:
    """Run a command to its end in ``folder``'s care: ``child.json`` says who it is, ``output.txt`` holds what it said.

    on_tick: called every ``poll`` seconds while it runs; an exception from it stops the child too. keep_open: descriptors
    that the child inherits (its slot's lock). grace: seconds between TERM and KILL when this process is interrupted.
    Leftovers of an earlier child of the same folder are killed first. Raises TrainingError with the child's own sentence
    when it ends with a status other than 0, TrainerDied when it gave none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    reap(folder)
    token = secrets.token_hex(16)
    _write_json(folder / "child.json", {"token": token, "command": list(command), "started": time.time()})
    output = folder / "output.txt"
    with output.open("ab") as sink:
        began = sink.tell()
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**(os.environ if env is None else env), TOKEN: token},
            pass_fds=tuple(keep_open),
            start_new_session=True,
        )
    try:
        while (status := _wait(child, poll)) is None:
            on_tick()
        on_tick()
    except BaseException:  # a cancel arrives as a BaseException; whatever it is, the child must not outlive us
        stop_group(child, grace)
        _kill_bearers(token)
        raise
    _kill_bearers(token)
    (folder / "child.json").unlink(missing_ok=True)
    if status:
        said = own_error(output, began)
        raise TrainingError(said) if said else TrainerDied(how_it_ended(output, began, status))


def stop_group(child: subprocess.Popen[bytes], grace: float) -> None:
    """TERM the child's process group, wait up to ``grace`` seconds for the child, KILL what is left of the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def reap(folder: Path, grace: float = 5.0) -> int:
    """Kill what an earlier child of this folder left behind; returns how many processes that were."""
    record = folder / "child.json"
    try:
        token = str(json.loads(record.read_text())["token"])
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return 0
    killed = _kill_bearers(token, grace)
    record.unlink(missing_ok=True)
    return killed


def bearers(token: str) -> list[psutil.Process]:
    """Living processes of this user whose environment carries the token; never this one."""
    return bearers_of(TOKEN, token)


def die_with_parent() -> None:
    """In a child: be terminated by the kernel when the parent dies (Linux; elsewhere `reap` alone does the work)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() == 1 and TOKEN in os.environ:  # the parent died before the call
        os.kill(os.getpid(), signal.SIGTERM)


def own_error(output: Path, began: int = 0) -> str | None:
    """The sentence that a child gave for its failure (its last line ``error: ...``), None when it gave none."""
    for line in reversed(_tail(output, began)):
        if line.startswith("error: "):
            return line.removeprefix("error: ")
    return None


def how_it_ended(output: Path, began: int, status: int) -> str:
    """One sentence about a child that gave no reason: its signal or status, its last line, and where its output is."""
    lines = _tail(output, began)
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    last = f" Its last line: {lines[-1].strip()[:300]}" if lines else ""
    return f"The trainer {how}; its output is in {output}.{last}"


def _tail(output: Path, began: int) -> list[str]:
    with output.open("rb") as file:
        file.seek(max(began, output.stat().st_size - 8192))
        return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


def _kill_bearers(token: str, grace: float = 0.0) -> int:
    found = bearers(token)
    if grace:
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        _, alive = psutil.wait_procs(found, timeout=grace)
    else:
        alive = found
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=5.0)
    return len(found)


def _wait(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _write_json(path: Path, value: object) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        file.write(json.dumps(value))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
