"""A run: its identity, and its folder.

The same recipe, seed, backend and name are the same run: starting it again continues or reuses it. ``fresh`` begins a new
generation (``<id>.2``, ``<id>.3`` ...); without it the newest generation is the one that goes on.

    runs/<id>/run.json          what the run is            runs/<id>/status.json    what it last did
    runs/<id>/stages/<stage>/   job, progress, output, result and checkpoints of one stage
    runs/<id>/report.md         the result                 flow-runs/<flow run>     which run a flow run works on
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.machine.home import home, runs_dir, warehouse_dir
from flows.machine.slots import held
from userrl_core.errors import ConfigError
from userrl_core.seeding import content_hash
from userrl_core.suggest import nearest

DIED = "died"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder with what it says about itself."""

    id: str
    folder: Path
    about: Mapping[str, Any]

    def stage(self, name: str) -> Path:
        """The folder of one stage."""
        return self.folder / "stages" / name

    @property
    def status(self) -> dict[str, Any]:
        """What it last did: ``state``, ``stage``, ``updated`` and, where there is one, ``error``.

        ``died`` is the state of one that says it is running while nobody holds its lock: kill -9, or a power cut.
        """
        found = read_json(self.folder / "status.json")
        if found is None or "state" not in found:
            return {"state": "new"}
        return {**found, "state": DIED} if found["state"] == "running" and not held(self.lock) else found

    @property
    def lock(self) -> Path:
        """Held by the one process that works on the run."""
        return self.folder / "run.lock"

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint that its report names; None for a run that trained nothing, or has not come to a report."""
        named = (read_json(self.folder / "report.json") or {}).get("checkpoint")
        return Path(named) if isinstance(named, str) and named else None

    def set_status(self, state: str, **fields: Any) -> None:
        """Say what the run does now."""
        write_json(self.folder / "status.json", {"state": state, "updated": time.time(), **fields})

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Its status while a flow works on it, and how that ended."""
        self.set_status("running")
        try:
            yield
        except BaseException as error:
            state = "failed" if isinstance(error, Exception) else "stopped"
            self.set_status(state, error="".join(str(error).splitlines()[:1]))
            raise
        self.set_status("completed")

    def ask_to_stop(self) -> None:
        """Whoever works on it stops within seconds, whether or not a server or a worker is up."""
        (self.folder / "stop").touch()

    def forget_stop(self) -> None:
        """A new start is not bound by an old wish."""
        (self.folder / "stop").unlink(missing_ok=True)


def identity(recipe: Mapping[str, Any], *, seed: int, backend: str, name: str, init_from: str | None) -> str:
    """Readable and unique: ``<name>-s<seed>-<hash>``. recipe: `Recipe.identity`."""
    what = {"recipe": recipe, "seed": seed, "backend": backend, "name": name, "init_from": init_from}
    label = _UNSAFE.sub("-", name or str(recipe["name"])).strip("-")[:60] or "run"
    return f"{label}-s{seed}-{content_hash(what)[:10]}"


def claim(base: str, about: Mapping[str, Any], *, fresh: bool, flow_run: str) -> Run:
    """The run to work on: the newest generation of ``base``, or a new one when ``fresh``.

    A retry of a flow run that asked for a fresh one gets the same generation again.
    """
    numbers, found = _generations(base)
    mine = next((run for run in found if fresh and run.about.get("claimed_by") == flow_run), None)
    if mine is None and (fresh or not found):
        run_id = _next(base, numbers)
        folder = runs_dir() / run_id
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "run.json", {**about, "id": run_id, "created": time.time(), "claimed_by": flow_run})
        mine = load(folder)
    run = mine or found[-1]
    write_json(home() / "flow-runs" / flow_run, {"run": run.id})
    return run


def goes_on_as(base: str) -> str:
    """The id of the run that `claim` gives to a start which asks for no fresh one."""
    numbers, found = _generations(base)
    return found[-1].id if found else _next(base, numbers)


def _next(base: str, numbers: list[int]) -> str:
    number = max(numbers, default=0) + 1
    return base if number == 1 else f"{base}.{number}"


def of_flow_run(flow_run: str) -> Run | None:
    """The run that a flow run works on, None before it has begun."""
    link = read_json(home() / "flow-runs" / flow_run)
    return None if link is None else load(runs_dir() / str(link["run"]))


def load(folder: Path) -> Run:
    """Raises ConfigError for a folder that is no run's."""
    about = read_json(folder / "run.json")
    if about is None or not isinstance(about.get("id"), str) or not isinstance(about.get("created"), (int, float)):
        raise ConfigError(f"{folder} is no run's folder; `userrl runs list` shows the runs there are.")
    return Run(about["id"], folder, about)


def all_runs() -> list[Run]:
    """Every run of this home, the oldest first; a folder that cannot be read is left out with a word on stderr."""
    found = _readable(path.parent for path in sorted(runs_dir().glob("*/run.json")))
    return sorted(found, key=lambda run: (float(run.about["created"]), run.id))


def _readable(folders: Iterable[Path]) -> list[Run]:
    found = []
    for folder in folders:
        try:
            found.append(load(folder))
        except ConfigError:
            print(f"warning: {folder / 'run.json'} cannot be read; that run is left out.", file=sys.stderr)
    return found


def newest_trained() -> Run:
    """The newest run with a checkpoint. Raises ConfigError when there is none: evaluations are runs too, without one."""
    for run in reversed(all_runs()):
        if run.checkpoint is not None and run.checkpoint.is_dir():
            return run
    raise ConfigError(f"No run in {home()} has a checkpoint yet; `make run` trains one.")


def find(text: str) -> Run:
    """A run by id, by a unique beginning of it, by name, or ``latest``. Raises ConfigError naming the nearest."""
    runs = all_runs()
    if not runs:
        raise ConfigError(f"There is no run in {home()} yet; `make run` starts one.")
    if text == "latest":
        return runs[-1]
    exact = [run for run in runs if text in (run.id, run.about.get("name"))]
    if exact:
        return exact[-1]
    starts = [run for run in runs if run.id.startswith(text)]
    if len(starts) == 1:
        return starts[0]
    ids = [run.id for run in runs]
    why = f"{len(starts)} runs begin with '{text}'" if starts else f"There is no run '{text}'{nearest(text, ids)}"
    raise ConfigError(f"{why}; `userrl runs list` shows them all.")


def delete(run: Run) -> None:
    """Remove a run's folder: checkpoints, progress, report. Its turns stay in the warehouse, which only ever grows."""
    grave = run.folder.with_name(f".deleted-{run.id}-{os.getpid()}")
    run.folder.rename(grave)
    shutil.rmtree(grave)


def _generations(base: str) -> tuple[list[int], list[Run]]:
    """The numbers that are taken, unreadable ones too, and the runs, the newest last. Deleting one leaves a gap.

    A number is also taken by turns: those of a deleted run stay in the warehouse, and another run's must not join them.
    """
    there = {_number(path.parent.name, base): path.parent for path in runs_dir().glob(f"{base}*/run.json")}
    logged = {_number(path.name.removeprefix("run="), base) for path in warehouse_dir().glob(f"runs/run={base}*")}
    numbers = sorted(number for number in {*there, *logged} if number)
    return numbers, _readable(there[number] for number in numbers if number in there)


def _number(run_id: str, base: str) -> int:
    """Which generation of ``base`` an id is; 0 for another run's."""
    if run_id == base:
        return 1
    number = run_id.removeprefix(f"{base}.")
    return int(number) if number != run_id and number.isdecimal() and int(number) > 1 else 0


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, None where there is no readable one."""
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no JSON, or no text
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: object) -> None:
    """Whole or not at all, and on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w") as file:
        json.dump(value, file, indent=1, default=str)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
