"""A run: its identity, its folder, and its look-up.

The same recipe, seed, backend and name are the same run. Starting it again continues or reuses it. ``fresh`` starts a new
generation (``<id>.2``, ``<id>.3`` ...). Without it the newest generation is continued.

    runs/<id>/run.json          description of the run     runs/<id>/status.json    its current state
    runs/<id>/stages/<stage>/   job, progress, output, result and checkpoints of one stage
    runs/<id>/report.md         the result                 flow-runs/<flow run>     a flow run's run and machine
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from userrl.machine.home import home, in_this_home, runs_dir, warehouse_dir
from userrl.machine.slots import held, holder, holder_pid
from userrl_core.errors import ConfigError, UserRLError
from userrl_core.json_files import read_json, unchanged, with_checksum, write_json
from userrl_core.replaced_file import remove_folder
from userrl_core.run_names import RunName, choose_run
from userrl_core.seeding import content_hash
from warehouse.files.runs import find_run, mark_failed, retire_run

if TYPE_CHECKING:
    from curricula import Recipe

DIED = "died"
STOPS = ("run.stopped", "budget.spent")
"""Codes of the errors by which a person or the budget stops a run. It is then not called failed."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


# Plain dataclasses: importing pydantic takes longer than a list of runs.
@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """The description of a run."""

    name: str = ""
    recipe: str = ""
    profile: str | None = None
    seed: int = 0
    backend: str = "local"
    resolved: dict[str, Any] = field(default_factory=dict)
    """The recipe's values when the run began."""
    init_from: str | None = None
    because: str = ""
    """Why this generation began although an earlier one could be continued; "" if nothing required it."""


@dataclass(frozen=True, kw_only=True)
class RunInfo(RunDescription):
    """The content of ``run.json``. created: Unix seconds. claimed_by: the flow run that created it."""

    id: str
    created: float
    claimed_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The status of a run. state: new, running, completed, failed, stopped (by a person, its worker or its budget) or died."""

    state: str = "new"
    stage: str | None = None
    updated: float | None = None
    error: str | None = None
    code: str | None = None
    """The code of the error, if it is one of ours."""
    waits: str | None = None
    """The run or process that holds the slot this stage waits for, if any."""

    @property
    def at_work(self) -> str:
        """Return the state, and ``waiting`` for a running run whose stage waits for a slot."""
        return "waiting" if self.waits and self.state == "running" else self.state

    def known(self) -> dict[str, Any]:
        """Return the values that are not None, as they are stored."""
        return {name: value for name, value in asdict(self).items() if value is not None}


_Stored = TypeVar("_Stored", bound=RunDescription | RunStatus)


def from_stored(kind: type[_Stored], values: Mapping[str, Any]) -> _Stored:
    """Make a description or a status from stored values, without those that another version wrote. Raises TypeError if one is
    missing or of another type.
    """
    stored = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    hints = get_type_hints(kind)
    wrong = [name for name, value in stored.items() if type(value) not in _types_of(hints[name])]
    if wrong:
        raise TypeError(f"of another type: {', '.join(wrong)}")
    return kind(**stored)


def _types_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (get_origin(hint) or hint,)


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder with its description."""

    id: str
    folder: Path
    info: RunInfo

    def stage(self, name: str) -> Path:
        """Return the folder of one stage."""
        return self.folder / "stages" / name

    @property
    def status(self) -> RunStatus:
        """The run's status. ``died``: it is marked as running but no process holds its lock (kill -9, or a power cut)."""
        status = read_status(self.folder)
        return replace(status, state=DIED) if status.state == "running" and not held(self.lock) else status

    @property
    def lock(self) -> Path:
        """The lock of the one process that works on the run."""
        return self.folder / "run.lock"

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint named in its report. None for a run without training or report."""
        path = (read_json(self.folder / "report.json") or {}).get("checkpoint")
        return in_this_home(self.folder, Path(path)) if isinstance(path, str) and path else None

    def set_status(
        self, state: str, *, stage: str | None = None, error: str | None = None, code: str | None = None
    ) -> None:
        """Write the run's status."""
        status = RunStatus(state=state, stage=stage, updated=time.time(), error=error, code=code)
        write_json(self.folder / "status.json", status.known())
        mark_failed(warehouse_dir(), self.id, failed=self.failed_before_rl)

    @property
    def failed_before_rl(self) -> bool:
        """Whether the run failed and has no stage of RL. `latest` does not mean such a run."""
        return read_status(self.folder).state == "failed" and not any(self.folder.glob("stages/rl-*"))

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep the run's status up to date while a flow works on it, and record how that ended."""
        self.set_status("running")
        try:
            yield
        except BaseException as error:
            code = error.code if isinstance(error, UserRLError) else None
            is_failure = isinstance(error, Exception) and code not in STOPS
            self.set_status(
                "failed" if is_failure else "stopped", error="".join(str(error).splitlines()[:1]), code=code
            )
            raise
        self.set_status("completed")

    @property
    def restart(self) -> str:
        """Instructions for continuing the run, as far as the run knows."""
        from curricula.yaml_files import profile_names, recipe_names  # imported here: a list of runs needs no recipe

        info = self.info
        if info.recipe not in recipe_names() or all(
            stage.name == "evaluate" for stage in self.folder.glob("stages/[a-z]*")
        ):
            return "start it again with the same parameters"
        is_shipped = info.profile in profile_names()
        profile = f" -p profile={info.profile}" if is_shipped else ""
        others = "name and overrides" if is_shipped or not info.profile else "name, overrides and the profile's file"
        return (
            f"start it again with the same parameters (including {others}): "
            f"prefect deployment run train/{info.recipe} -p seed={info.seed}{profile}"
        )

    def ask_to_stop(self) -> None:
        """Ask the process that works on the run to stop within seconds, with or without a server or worker."""
        (self.folder / "stop").touch()

    def forget_stop(self) -> None:
        """Remove an earlier request to stop, so that it does not affect a new start."""
        (self.folder / "stop").unlink(missing_ok=True)


def asked_to_stop(folder: Path) -> bool:
    """Return whether a person asked the run in this folder to stop since its last start."""
    return (folder / "stop").exists()


def read_status(folder: Path) -> RunStatus:
    """Return the last recorded status of the run in this folder, whether or not it still works. A damaged one is ``new``."""
    try:
        return from_stored(RunStatus, read_json(folder / "status.json") or {})
    except TypeError:
        return RunStatus()


def set_waiting(folder: Path, holder: str | None) -> None:
    """Record the holder that the run in this folder waits for. None: it no longer waits."""
    status = replace(read_status(folder), waits=holder, updated=time.time())
    write_json(folder / "status.json", status.known())


def waiting_sentence(holders: str) -> str:
    """Return what a stage that waits for a slot waits for, and what to do. holders: `RunStatus.waits`."""
    remedy = " (`userrl runs stop RUN` frees it)" if "run " in holders else ""
    return f"waits for a training slot and starts by itself; in use: {holders}{remedy}"


def holder_of(lock_file: Path) -> str:
    """Return the holder of a slot for a sentence: a run of this home if it is one, else a process."""
    from userrl_core.processes import has_open  # imported here: a list of runs needs no processes

    pid = holder_pid(lock_file)
    held_by = next(
        (
            run.id
            for run in all_runs()
            if pid is not None and holder_pid(run.lock) == pid and held(run.lock) and has_open(pid, run.lock)
        ),
        None,
    )
    return f"run {held_by}" if held_by else holder(lock_file)


def identity(recipe: Mapping[str, Any], *, seed: int, backend: str, name: str, init_from: str | None) -> str:
    """Return a readable and unique id: ``<name>-s<seed>-<hash>``. recipe: `Recipe.identity`."""
    hashed = {"recipe": recipe, "seed": seed, "backend": backend, "name": name, "init_from": init_from}
    label = _UNSAFE.sub("-", name or str(recipe["name"])).strip("-")[:60] or "run"
    return f"{label}-s{seed}-{content_hash(hashed)[:10]}"


def known_start(init_from: str) -> str:
    """Return a checkpoint's path as this home's runs know it. In a moved home it is the path before the move."""
    if not Path(init_from).is_relative_to(runs_dir()):
        return init_from
    starts = [run.info.init_from for run in all_runs() if run.info.init_from]
    below = f"/runs/{Path(init_from).relative_to(runs_dir())}"
    return init_from if init_from in starts else next((path for path in starts if path.endswith(below)), init_from)


def claim(base: str, description: RunDescription, *, fresh: bool, flow_run: str | None) -> Run:
    """Return the run to work on: the one that is continued, or a new generation if there is none or the description has a
    reason for one. flow_run: None outside a flow.
    """
    run = None if description.because else continued(base, fresh=fresh, flow_run=flow_run)
    if run is None:
        run_id = _next(base, _generations(base)[0])
        info = RunInfo(**asdict(description), id=run_id, created=time.time(), claimed_by=flow_run or "none")
        write_json(runs_dir() / run_id / "run.json", with_checksum(asdict(info)))
        run = load(runs_dir() / run_id)
    if flow_run is not None:
        write_json(home() / "flow-runs" / flow_run, {"run": run.id, "host": socket.gethostname()})
    return run


def continued(base: str, *, fresh: bool, flow_run: str | None) -> Run | None:
    """Return the run that a start continues: the newest generation of ``base``, or None if ``fresh`` or there is none.

    A retry of a flow run that asked for a fresh one gets the generation that it began. Outside a flow, every call with ``fresh``
    gets None.
    """
    generations = _generations(base)[1]
    if fresh:
        return next(
            (run for run in reversed(generations) if flow_run is not None and run.info.claimed_by == flow_run), None
        )
    return generations[-1] if generations else None


def run_fields(recipe: Recipe, **fields: Any) -> dict[str, Any]:
    """Return the columns of a run's row in the warehouse. fields: those that do not come from the recipe."""
    credit, stages = recipe.credit, recipe.planned_stages
    return {
        "name": recipe.name,
        "recipe": recipe.name,
        "recipe_json": recipe.resolved(),
        "recipe_hash": group_hash(recipe),
        "profile": recipe.profile or "",
        **credit.model_dump(include={"shaping", "score", "gamma", "k", "form", "ddof"}),
        "horizon": (stages[-1].horizon if stages else None) or recipe.evaluate.horizon,
        **fields,
    }


def known_as(new_id: str, former_id: str) -> str:
    """Return the run's id: the former one if only a run with that id exists, else the new one.

    Ids up to commit f197b02 were computed from the recipe's citation too.
    """
    return former_id if not _generations(new_id)[1] and _generations(former_id)[1] else new_id


def group_hash(recipe: Recipe) -> str:
    """Return the hash that groups the recipe's runs: the former one if this home already has runs with it, else the new one."""
    files = warehouse_dir().glob("runs/run=*/run.json")
    return (
        recipe.former_hash if any(recipe.former_hash.encode() in file.read_bytes() for file in files) else recipe.hash
    )


def goes_on_as(base: str, *, anew: bool = False) -> str:
    """Return the id of the run that `claim` gives without ``fresh``. anew: a new generation begins in any case."""
    numbers, generations = _generations(base)
    return generations[-1].id if generations and not anew else _next(base, numbers)


def of_flow_run(flow_run: str) -> Run | None:
    """Return the run that a flow run works on. None before it has begun, and once its folder is deleted."""
    link = read_json(home() / "flow-runs" / flow_run)
    folder = None if link is None else runs_dir() / str(link["run"])
    return None if folder is None or not folder.exists() else load(folder)


def host_of_flow_run(flow_run: str) -> str | None:
    """Return the machine that a flow run works on. None before it has begun, and if an earlier version recorded it."""
    host = (read_json(home() / "flow-runs" / flow_run) or {}).get("host")
    return host if isinstance(host, str) else None


def load(folder: Path) -> Run:
    """Load the run in a folder. Raises ConfigError if it is not a run's folder, or if ``run.json`` was changed since."""
    described = read_record(folder / "run.json") or {}
    try:
        info = from_stored(RunInfo, {**described, "created": float(described["created"])})
    except (KeyError, TypeError, ValueError):
        raise ConfigError(
            "run.no_such_run", f"{folder} is not the folder of a run. `userrl runs list` shows all runs."
        ) from None
    return Run(info.id, folder, info)


def read_record(file: Path) -> dict[str, Any] | None:
    """Return the content of a ``run.json``, or None if unreadable. Raises ConfigError if it was changed since it was written.

    Files up to commit f197b02 have no checksum and are read as before.
    """
    record = read_json(file)
    if record is not None and unchanged(record) is False:
        raise ConfigError(
            "file.damaged",
            f"{file} fails its checksum. Restore it from a backup, or start the run again with fresh=true.",
        )
    return record


def all_runs() -> list[Run]:
    """Return every run of this home, oldest first. An unreadable folder is skipped with a warning on stderr."""
    runs = _readable(path.parent for path in sorted(runs_dir().glob("[!.]*/run.json")))
    return sorted(runs, key=lambda run: (run.info.created, run.id))


def find(text: str) -> Run:
    """Return the run with this id, name or beginning of an id, or ``latest``. Raises ConfigError."""
    runs = {run.id: run for run in all_runs()}
    if text == "latest" and not runs:
        find_run(warehouse_dir(), text)  # which names an imported run
    names = (RunName(run.id, run.info.name, run.info.created, failed=run.failed_before_rl) for run in runs.values())
    return runs[choose_run(text, names, home())]


def delete(run: Run) -> None:
    """Delete a run's folder (of a link the link alone): checkpoints, progress, report. Its turns stay in the warehouse."""
    retire_run(warehouse_dir(), run.id)
    for leftover in runs_dir().glob(".deleted-*"):  # of a deletion by an earlier version that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    remove_folder(run.folder)


def _next(base: str, numbers: list[int]) -> str:
    number = max(numbers, default=0) + 1
    return base if number == 1 else f"{base}.{number}"


def _readable(folders: Iterable[Path]) -> list[Run]:
    runs = []
    for folder in folders:
        try:
            runs.append(load(folder))
        except ConfigError:
            print(f"warning: {folder / 'run.json'} cannot be read; this run is skipped.", file=sys.stderr)
    return runs


def _generations(base: str) -> tuple[list[int], list[Run]]:
    """Return the used generation numbers, including unreadable ones, and the runs, newest last. Deleting a run leaves a gap.

    Logged turns also keep a number in use: turns of a deleted run stay in the warehouse, and another run's must not
    join them.
    """
    folders = {_number(path.parent.name, base): path.parent for path in runs_dir().glob(f"{base}*/run.json")}
    logged = {_number(path.name.removeprefix("run="), base) for path in warehouse_dir().glob(f"runs/run={base}*")}
    numbers = sorted(number for number in {*folders, *logged} if number)
    return numbers, _readable(folders[number] for number in numbers if number in folders)


def _number(run_id: str, base: str) -> int:
    """Return the generation of ``base`` that an id is; 0 for another run's id."""
    if run_id == base:
        return 1
    number = run_id.removeprefix(f"{base}.")
    return int(number) if number != run_id and number.isdecimal() and int(number) > 1 else 0
