"""A team on one machine: a worker per member, with all of its own but the home that they share."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import psutil

from tests.sweeps.rig import Machine

MEMBERS = ("ann", "bob", "eve")


def join(machine: Machine, name: str, folder: Path) -> psutil.Process:
    """Start a worker with a home, Prefect's profile and cache, and temporary files of its own."""
    own = folder / name
    (own / "tmp").mkdir(parents=True)
    environment = {"HOME": str(own), "PREFECT_HOME": str(own / "prefect"), "TMPDIR": str(own / "tmp")}
    worker = machine.worker(name, "--work-queue", "default", "--limit", "1", environment=environment)
    return psutil.Process(worker.pid)


def lose(machine: Machine, own: Path) -> None:
    """SIGKILL to a worker, its flow and its trainer, as when its machine loses power."""
    while alive := processes_of(machine, own):
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=5.0)


def processes_of(machine: Machine, own: Path) -> list[psutil.Process]:
    found = []
    for process in machine.processes():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME") == str(own):
                found.append(process)
    return found


def submitted(machine: Machine, name: str) -> set[str]:
    """The flow runs that a worker started. Two may reach for the same one; the server then turns the second away."""
    log = (machine.logs / f"{name}.log").read_text()
    reached, refused = (
        set(re.findall(rf"{words} flow run '([0-9a-f-]+)'", log)) for words in ("submitting", "Aborted submission of")
    )
    return reached - refused
