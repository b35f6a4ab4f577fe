"""One training per GPU, or per share of the CPU. A file lock decides, whatever a server believes.

The kernel drops a lock when its holder dies, so a crash never blocks a machine. The training process inherits the lock's
descriptor. It keeps the slot while it lives, even if the flow that started it is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from userrl.machine.home import number_in_environment
from userrl_core.errors import ConfigError
from userrl_core.file_lock import acquire
from userrl_core.json_files import read_json

_SLOT = re.compile(r"(gpu|cpu)-[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place to train in: ``gpu-0`` or ``cpu-1``."""

    name: str
    descriptor: int = -1
    """The held lock file, passed on to the training process. -1 if not held."""

    @property
    def gpu(self) -> int | None:
        """The GPU's index, None for a CPU slot."""
        kind, _, number = self.name.partition("-")
        return int(number) if kind == "gpu" else None


def slots() -> tuple[Slot, ...]:
    """Return the machine's slots: one per visible GPU, else one per two CPU cores.

    ``$USERRL_THREADS`` changes the number of cores per slot. ``$USERRL_SLOTS`` sets the names of all slots.
    """
    slot_names = os.environ.get("USERRL_SLOTS")
    if slot_names:
        names = [name.strip() for name in slot_names.split(",")]
        if len(set(names)) < len(names) or not all(map(_SLOT.fullmatch, names)):
            raise ConfigError(
                "argument.malformed",
                f"USERRL_SLOTS must list different names such as gpu-0,gpu-1 or cpu-0, not {slot_names[:80]!a}.",
            )
        return tuple(map(Slot, names))
    gpus = _gpus()
    if gpus:
        return tuple(Slot(f"gpu-{index}") for index in gpus)
    return tuple(Slot(f"cpu-{index}") for index in range(max(1, (os.cpu_count() or 1) // threads())))


def threads(requested: int | None = None) -> int:
    """Return the threads of one operation: ``$USERRL_THREADS``, else the recipe's request, else 2.

    A resume is exact only with the same number.
    """
    return number_in_environment("USERRL_THREADS", requested or 2, 1, 1024)


def named(gpus: str | None) -> tuple[Slot, ...]:
    """Return the slots of GPUs written as ``6,7``. Empty for None."""
    return tuple(Slot(f"gpu-{part.strip()}") for part in (gpus or "").split(",") if part.strip())


def _gpus() -> tuple[int, ...]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(int(part) for part in visible.split(",") if part.strip().isdigit())
    devices = Path("/proc/driver/nvidia/gpus")
    return tuple(range(len(list(devices.iterdir())))) if devices.is_dir() else ()


def lock_file(folder: Path, slot: str) -> Path:
    """Return the lock file of a slot. Its name has the machine, because nodes of a cluster may share the folder.

    SLURM may number the GPUs of every job from 0, and gives no GPU to two jobs. Its jobs have locks of their own.
    """
    job = os.environ.get("SLURM_JOB_ID", "") if slot.startswith("gpu-") and "SLURM_JOB_GPUS" in os.environ else ""
    return folder / ".".join(filter(None, (socket.gethostname(), job and f"job-{job}", slot, "lock")))


@contextlib.contextmanager
def take(
    folder: Path,
    count: int,
    among: Sequence[Slot],
    *,
    waiting: Callable[[str], None] = lambda who: None,
    holder_of: Callable[[Path], str] | None = None,
    poll: float = 0.5,
) -> Iterator[tuple[Slot, ...]]:
    """Hold ``count`` of these slots, all or none. Two holders of half the slots would wait for each other for ever.

    folder: the lock files, shared by all users of the machine, perhaps with other machines. waiting: called once with the
    holders of the slots, as named by ``holder_of`` (a process by default). Raises ConfigError if there are not that many slots.
    """
    if len(among) < count:
        names = ", ".join(slot.name for slot in among) or "none"
        raise ConfigError(
            "hardware.too_few_gpus", f"{count} slots are needed, and this machine has {len(among)} for it ({names})."
        )
    folder.mkdir(parents=True, exist_ok=True)
    announced = False
    while True:
        with contextlib.ExitStack() as locks:
            acquired: list[Slot] = []
            for slot in among:
                descriptor = lock(lock_file(folder, slot.name)) if len(acquired) < count else None
                if descriptor is not None:
                    locks.callback(os.close, descriptor)
                    acquired.append(Slot(slot.name, descriptor))
            if len(acquired) == count:
                yield tuple(acquired)
                return
        if not announced:
            held_names = {slot.name for slot in acquired}
            others = [slot for slot in among if slot.name not in held_names]
            waiting(
                ", ".join(f"{slot.name} by {(holder_of or holder)(lock_file(folder, slot.name))}" for slot in others)
            )
            announced = True
        time.sleep(poll * (0.5 + random.random()))  # two processes that need all slots must not retry in step


@contextlib.contextmanager
def alone(path: Path, resource: str) -> Iterator[None]:
    """Hold a lock file, or raise ConfigError with its holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = lock(path)
    for _ in range(3):
        if descriptor is None:
            time.sleep(0.1)  # `held` takes it for an instant
            descriptor = lock(path)
    if descriptor is None:
        raise ConfigError("run.in_use", f"{resource} is in use by {holder(path)}. Wait for it, or stop it.")
    try:
        yield
    finally:
        os.close(descriptor)


def lock(path: Path) -> int | None:
    """Take an exclusive lock on a file. None if it is taken. It is held until all heirs of the descriptor close it."""
    descriptor = acquire(path)
    if descriptor is not None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
    return descriptor


def held(path: Path) -> bool:
    """Return whether a process holds the lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(path: Path) -> str:
    """Name the holder of a lock, for a sentence."""
    pid, host = holder_pid(path), _written(path).get("host", socket.gethostname())
    machine = "" if host == socket.gethostname() else f" on {host}"
    return f"another process{machine}" if pid is None else f"process {pid}{machine}"


def holder_pid(path: Path) -> int | None:
    """Return the id of the process that last took a lock, on its machine, or None if it left no id."""
    pid = _written(path).get("pid")
    return pid if isinstance(pid, int) else None


def _written(path: Path) -> dict[str, Any]:
    """Return what the process that last took a lock wrote into it: its id and machine, or the id alone in earlier versions."""
    try:
        return read_json(path) or {}
    except OSError:
        return {}
