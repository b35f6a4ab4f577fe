"""Stop a run at work. A file of its own, because a list of runs needs no processes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil

from userrl.machine.slots import held, holder_pid
from userrl.run.run import Run, read_status
from userrl_core.processes import living, reap

GRACE_SECONDS = 2.0
"""Seconds between TERM and KILL for a flow that ignores the request to stop."""


def stop(run: Run, patience: float) -> None:
    """Ask the run's process to stop. After ``patience`` seconds kill what is left, including trainers.

    A flow whose server is gone may wait for it without checking for requests to stop.
    """
    run.ask_to_stop()
    deadline = time.monotonic() + patience
    stages = list(run.folder.glob("stages/*"))
    while held(run.lock) or any(map(living, stages)):
        if time.monotonic() > deadline:
            _kill(run.lock)
            for stage in stages:
                reap(stage)
            break
        time.sleep(0.2)
    if read_status(run.folder).state == "running" and not held(run.lock):
        run.set_status("stopped")


def _kill(lock: Path) -> None:
    pid = holder_pid(lock)
    with contextlib.suppress(psutil.NoSuchProcess):
        if pid is not None and held(lock):
            flow = psutil.Process(pid)
            flow.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                flow.wait(GRACE_SECONDS)
            flow.kill()  # psutil checks that it is the same process
