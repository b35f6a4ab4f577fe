"""Stop a run at work. A file of its own, because a list of runs needs no processes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil

from userrl.machine.slots import held, holder, holder_pid
from userrl.run.run import Run, read_status
from userrl_core.errors import ConfigError
from userrl_core.processes import has_open, living, reap

GRACE_SECONDS = 2.0
"""Seconds between TERM and KILL for a flow that ignores the request to stop."""


def stop(run: Run, patience: float) -> None:
    """Ask the run's process to stop. After ``patience`` seconds kill what is left, including trainers. Raises ConfigError if the
    process is on another machine that shares the home, and has not stopped.

    A flow whose server is gone may wait for it without checking for requests to stop.
    """
    run.ask_to_stop()
    deadline = time.monotonic() + patience
    stages = list(run.folder.glob("stages/*"))
    while held(run.lock) or any(map(living, stages)):
        if time.monotonic() > deadline:
            is_here = _kill(run.lock)
            for stage in filter(living, stages):
                reap(stage)
            if not is_here and held(run.lock):
                raise ConfigError(
                    "run.in_use",
                    f"Run {run.id} was asked to stop, but {holder(run.lock)} still works on it and cannot be ended from here. "
                    "Give this command on its machine, as its user.",
                )
            break
        time.sleep(0.2)
    if read_status(run.folder).state == "running" and not held(run.lock):
        run.set_status("stopped")


def _kill(lock: Path) -> bool:
    """End the process that holds the lock. Return False if it is not a process of this machine and user."""
    pid = holder_pid(lock)
    if pid is None or not held(lock) or not has_open(pid, lock):
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        flow = psutil.Process(pid)
        flow.terminate()
        with contextlib.suppress(psutil.TimeoutExpired):
            flow.wait(GRACE_SECONDS)
        flow.kill()  # psutil checks that it is the same process
    return True
