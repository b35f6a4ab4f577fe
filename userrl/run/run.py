"""A run: its identity, its folder, and how it is found.

The same recipe, seed, backend and name are the same run: starting it again continues or reuses it. ``fresh`` begins a new
generation (``<id>.2``, ``<id>.3`` ...); without it the newest generation is the one that goes on.

    runs/<id>/run.json          what the run is            runs/<id>/status.json    what it last did
    runs/<id>/stages/<stage>/   job, progress, output, result and checkpoints of one stage
    runs/<id>/report.md         the result                 flow-runs/<flow run>     which run a flow run works on
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curricula import Recipe
from curricula.yaml_files import recipe_names
from userrl.machine.home import home, in_this_home, runs_dir, warehouse_dir
from userrl.machine.slots import held, holder, holder_pid
from userrl_core.errors import ConfigError
from userrl_core.json_files import read_json, unchanged, with_checksum, write_json
from userrl_core.processes import living, reap
from userrl_core.run_names import RunName, choose_run
from userrl_core.seeding import content_hash
from warehouse.files.runs import retire_run

DIED = "died"
GRACE_SECONDS = 2.0
"""Between TERM and KILL of a flow that does not hear that it is to stop."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


class RunDescription(BaseModel):
    """What a run is."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str = ""
    recipe: str = ""
    profile: str | None = None
    seed: int = 0
    backend: str = "local"
    resolved: dict[str, Any] = Field(default_factory=dict)
    """The recipe's values as they were when the run began."""
    init_from: str | None = None


class RunInfo(RunDescription):
    """What ``run.json`` says. created: Unix seconds. claimed_by: the flow run that made it."""

    id: str
    created: float
    claimed_by: str | None = None


class RunStatus(BaseModel):
    """What a run last did. state: new, running, completed, failed, stopped or died."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    state: str = "new"
    stage: str | None = None
    updated: float | None = None
    error: str | None = None
    waits: str | None = None
    """Whom its stage waits for, while it does."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder with what it says about itself."""

    id: str
    folder: Path
    info: RunInfo

    def stage(self, name: str) -> Path:
        """The folder of one stage."""
        return self.folder / "stages" / name

    @property
    def status(self) -> RunStatus:
        """What it last did. ``died`` is one that says it is running while nobody holds its lock: kill -9, or a power cut."""
        status = read_status(self.folder)
        return (
            status.model_copy(update={"state": DIED}) if status.state == "running" and not held(self.lock) else status
        )

    @property
    def lock(self) -> Path:
        """Held by the one process that works on the run."""
        return self.folder / "run.lock"

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint that its report names; None for a run that trained nothing, or has not come to a report."""
        path = (read_json(self.folder / "report.json") or {}).get("checkpoint")
        return in_this_home(self.folder, Path(path)) if isinstance(path, str) and path else None

    def set_status(self, state: str, *, stage: str | None = None, error: str | None = None) -> None:
        """Say what the run does now."""
        status = RunStatus(state=state, stage=stage, updated=time.time(), error=error)
        write_json(self.folder / "status.json", status.model_dump(exclude_none=True))

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

    @property
    def restart(self) -> str:
        """How a person has it continued, as far as the run knows."""
        info = self.info
        if info.recipe not in recipe_names() or all(
            stage.name == "evaluate" for stage in self.folder.glob("stages/[a-z]*")
        ):
            return "start it again with the same parameters"
        profile = f" -p profile={info.profile}" if info.profile else ""
        return (
            "start it again with the parameters that it had (name and overrides too): "
            f"prefect deployment run train/{info.recipe} -p seed={info.seed}{profile}"
        )

    def ask_to_stop(self) -> None:
        """Whoever works on it stops within seconds, whether or not a server or a worker is up."""
        (self.folder / "stop").touch()

    def stop(self, patience: float) -> None:
        """Ask whoever works on it to stop, and kill what is still there after ``patience`` seconds, trainers included.

        A flow whose server is gone may wait for it where it does not look at what it is asked.
        """
        self.ask_to_stop()
        deadline = time.monotonic() + patience
        stages = list(self.folder.glob("stages/*"))
        while held(self.lock) or any(map(living, stages)):
            if time.monotonic() > deadline:
                self._kill()
                for stage in stages:
                    reap(stage)
                break
            time.sleep(0.2)
        if read_status(self.folder).state == "running" and not held(self.lock):
            self.set_status("stopped")

    def _kill(self) -> None:
        """End the process that holds the run."""
        pid = holder_pid(self.lock)
        with contextlib.suppress(psutil.NoSuchProcess):
            if pid is not None and held(self.lock):
                flow = psutil.Process(pid)
                flow.terminate()
                with contextlib.suppress(psutil.TimeoutExpired):
                    flow.wait(GRACE_SECONDS)
                flow.kill()  # psutil looks that it is the same process

    def forget_stop(self) -> None:
        """An earlier request to stop does not bind a new start."""
        (self.folder / "stop").unlink(missing_ok=True)


def read_status(folder: Path) -> RunStatus:
    """What the run in this folder noted last, whether or not it is still at work."""
    return RunStatus.model_validate(read_json(folder / "status.json") or {})


def set_waiting(folder: Path, whom: str | None) -> None:
    """Say whom the run in this folder waits for; None: nobody any more."""
    status = read_status(folder).model_copy(update={"waits": whom, "updated": time.time()})
    write_json(folder / "status.json", status.model_dump(exclude_none=True))


def holder_of(lock_file: Path) -> str:
    """Who holds a slot, for a sentence: a run where one of this home's does, else a process."""
    pid = holder_pid(lock_file)
    held_by = next(
        (run.id for run in all_runs() if pid is not None and holder_pid(run.lock) == pid and held(run.lock)), None
    )
    return f"run {held_by}" if held_by else holder(lock_file)


def identity(recipe: Mapping[str, Any], *, seed: int, backend: str, name: str, init_from: str | None) -> str:
    """Readable and unique: ``<name>-s<seed>-<hash>``. recipe: `Recipe.identity`."""
    hashed = {"recipe": recipe, "seed": seed, "backend": backend, "name": name, "init_from": init_from}
    label = _UNSAFE.sub("-", name or str(recipe["name"])).strip("-")[:60] or "run"
    return f"{label}-s{seed}-{content_hash(hashed)[:10]}"


def known_start(init_from: str) -> str:
    """Return the path by which the runs of this home know a checkpoint: in a home that was moved, the one that it had before."""
    if not Path(init_from).is_relative_to(runs_dir()):
        return init_from
    known = [run.info.init_from for run in all_runs() if run.info.init_from]
    below = f"/runs/{Path(init_from).relative_to(runs_dir())}"
    return init_from if init_from in known else next((path for path in known if path.endswith(below)), init_from)


def claim(base: str, description: RunDescription, *, fresh: bool, flow_run: str | None) -> Run:
    """The run to work on: the newest generation of ``base``, or a new one when ``fresh``.

    A retry of a flow run that asked for a fresh one gets the same generation again. flow_run: None outside a flow, where every
    call that asks for a fresh run gets a new one.
    """
    numbers, generations = _generations(base)
    retried = (run for run in generations if fresh and flow_run is not None and run.info.claimed_by == flow_run)
    run = next(retried, None)
    if run is None and (fresh or not generations):
        run_id = _next(base, numbers)
        info = RunInfo(**description.model_dump(), id=run_id, created=time.time(), claimed_by=flow_run or "none")
        write_json(runs_dir() / run_id / "run.json", with_checksum(info.model_dump()))
        run = load(runs_dir() / run_id)
    run = run or generations[-1]
    if flow_run is not None:
        write_json(home() / "flow-runs" / flow_run, {"run": run.id})
    return run


def run_fields(recipe: Recipe, **fields: Any) -> dict[str, Any]:
    """Columns of a run's row in the warehouse. fields: those that the recipe does not say."""
    credit, stages = recipe.credit, recipe.planned_stages
    return {
        "name": recipe.name,
        "recipe": recipe.name,
        "recipe_json": recipe.resolved(),
        "recipe_hash": group_hash(recipe),
        "profile": recipe.profile or "",
        "shaping": credit.shaping,
        "score": credit.score,
        "gamma": credit.gamma,
        "k": credit.k,
        "form": credit.form,
        "ddof": credit.ddof,
        "horizon": (stages[-1].horizon if stages else None) or recipe.evaluate.horizon,
        **fields,
    }


def known_as(new: str, former: str) -> str:
    """Return the run's id: the former one where only a run of that id exists, else the new one.

    Ids up to commit f197b02 were computed from the recipe's citation too.
    """
    return former if not _generations(new)[1] and _generations(former)[1] else new


def group_hash(recipe: Recipe) -> str:
    """Return the hash that groups the recipe's runs: the former one where this home has runs of it already, else the new one."""
    files = warehouse_dir().glob("runs/run=*/run.json")
    return (
        recipe.former_hash if any(recipe.former_hash.encode() in file.read_bytes() for file in files) else recipe.hash
    )


def goes_on_as(base: str) -> str:
    """The id of the run that `claim` gives to a start which asks for no fresh one."""
    numbers, generations = _generations(base)
    return generations[-1].id if generations else _next(base, numbers)


def of_flow_run(flow_run: str) -> Run | None:
    """The run that a flow run works on, None before it has begun."""
    link = read_json(home() / "flow-runs" / flow_run)
    return None if link is None else load(runs_dir() / str(link["run"]))


def load(folder: Path) -> Run:
    """Raises ConfigError for a folder that is no run's, and for a ``run.json`` that was changed since it was written."""
    described = read_record(folder / "run.json")
    try:
        info = RunInfo.model_validate(described)
    except ValidationError:
        raise ConfigError(f"{folder} is no run's folder; `userrl runs list` shows the runs there are.") from None
    return Run(info.id, folder, info)


def read_record(file: Path) -> dict[str, Any] | None:
    """Return what a ``run.json`` holds, None for an unreadable one. Raises ConfigError where it was changed since it was written.

    Files up to commit f197b02 have no checksum and are read as before.
    """
    record = read_json(file)
    if record is not None and unchanged(record) is False:
        raise ConfigError(
            f"{file} fails its checksum; put it back from a backup, or start the run again with fresh=true."
        )
    return record


def all_runs() -> list[Run]:
    """Every run of this home, the oldest first; a folder that cannot be read is left out with a warning on stderr."""
    runs = _readable(path.parent for path in sorted(runs_dir().glob("*/run.json")))
    return sorted(runs, key=lambda run: (run.info.created, run.id))


def find(text: str) -> Run:
    """The run that a person means by an id, a name, the beginning of an id, or ``latest``. Raises ConfigError."""
    runs = {run.id: run for run in all_runs()}
    return runs[choose_run(text, (RunName(run.id, run.info.name, run.info.created) for run in runs.values()), home())]


def delete(run: Run) -> None:
    """Remove a run's folder: checkpoints, progress, report. Its turns stay in the warehouse, which only ever grows."""
    trash = run.folder.with_name(f".deleted-{run.id}-{os.getpid()}")
    run.folder.rename(trash)
    shutil.rmtree(trash)
    retire_run(warehouse_dir(), run.id)


def _next(base: str, numbers: list[int]) -> str:
    number = max(numbers, default=0) + 1
    return base if number == 1 else f"{base}.{number}"


def _readable(folders: Iterable[Path]) -> list[Run]:
    runs = []
    for folder in folders:
        try:
            runs.append(load(folder))
        except ConfigError:
            print(f"warning: {folder / 'run.json'} cannot be read; that run is left out.", file=sys.stderr)
    return runs


def _generations(base: str) -> tuple[list[int], list[Run]]:
    """The numbers that are taken, unreadable ones too, and the runs, the newest last. Deleting one leaves a gap.

    A number is also taken by turns: those of a deleted run stay in the warehouse, and another run's must not join them.
    """
    folders = {_number(path.parent.name, base): path.parent for path in runs_dir().glob(f"{base}*/run.json")}
    logged = {_number(path.name.removeprefix("run="), base) for path in warehouse_dir().glob(f"runs/run={base}*")}
    numbers = sorted(number for number in {*folders, *logged} if number)
    return numbers, _readable(folders[number] for number in numbers if number in folders)


def _number(run_id: str, base: str) -> int:
    """Which generation of ``base`` an id is; 0 for another run's."""
    if run_id == base:
        return 1
    number = run_id.removeprefix(f"{base}.")
    return int(number) if number != run_id and number.isdecimal() and int(number) > 1 else 0
