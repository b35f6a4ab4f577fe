"""The list of a home's runs: state, scores and outcome."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from userrl.machine.home import warehouse_dir
from userrl.run.ending import Ending, endings, in_a_word, in_short
from userrl.run.results import validation_scores
from userrl.run.run import all_runs
from userrl_core.errors import LogError, UserRLError
from warehouse import open_warehouse
from warehouse.files.layout import run_folders
from warehouse.files.runs import IMPORTED, RETIRED, read_run


class ListedRun(BaseModel):
    """A run in a list. best, last: mean validation scores. ending: the outcome, by branch if there are branches. outcome:
    the same in the width of a column. waits: the holder of its slot.
    """

    model_config = ConfigDict(frozen=True)

    run: str
    recipe: str
    profile: str | None
    seed: int
    state: str
    stage: str | None
    best: float | None
    last: float | None
    ending: str | None
    outcome: str | None
    created: float
    waits: str | None
    folder: Path


def listed_runs() -> tuple[list[ListedRun], str]:
    """Return the runs, oldest first, and the reason why their endings are unknown, or "".

    A damaged warehouse hides no run.
    """
    ended, problem = _endings()
    rows = []
    for run in all_runs():
        status, (best, last) = run.status, validation_scores(run.folder)
        rows.append(
            ListedRun(
                run=run.id,
                recipe=run.info.recipe,
                profile=run.info.profile,
                seed=run.info.seed,
                state=status.state,
                stage=status.stage,
                best=best,
                last=last,
                ending=in_a_word(ended.get(run.id, ())) or None,
                outcome=in_short(ended.get(run.id, ())) or None,
                created=run.info.created,
                waits=status.waits if status.state == "running" else None,
                folder=run.folder,
            )
        )
    return rows, problem


class ListedImport(BaseModel):
    """An imported run in a list. state: tells it from a run of ours. created: Unix seconds of the import."""

    model_config = ConfigDict(frozen=True)

    run: str
    name: str
    state: str = IMPORTED
    created: float


def listed_imports() -> list[ListedImport]:
    """Return the imported runs, oldest first. A deleted run is left out, and so is one whose row cannot be read."""
    found = []
    for folder in run_folders(warehouse_dir()):
        with suppress(LogError):
            row = read_run(folder)
            if row is not None and row.get("kind") == IMPORTED and not (folder / RETIRED).exists():
                found.append(ListedImport(run=row["run_id"], name=row["name"], created=row["created"]))
    return sorted(found, key=lambda each: (each.created, each.run))


def _endings() -> tuple[dict[str, list[Ending]], str]:
    """Return the endings of each run, and the reason why they cannot be read, or ""."""
    import duckdb

    if not warehouse_dir().is_dir():
        return {}, ""
    try:
        with open_warehouse(warehouse_dir()) as warehouse:
            return endings(warehouse), ""
    except (UserRLError, duckdb.Error) as error:
        return {}, str(error)
