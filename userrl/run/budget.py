"""A run's budget of hours and money, checked before each stage and during it.

Hours count the time in which the run's stages worked, including interrupted attempts. Starting a stopped run again does
not refill the budget. Money is the price of its model calls as far as prices are known, including calls of superseded
turns.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from userrl.run.results import EARLIER, Result
from userrl_core.errors import TrainingError, UserRLError
from userrl_core.json_files import GrowingLines, read_json
from warehouse import open_warehouse

if TYPE_CHECKING:
    from userrl.run.job import StageJob

MONEY_EVERY_SECONDS = 10.0


def check_budget(job: StageJob) -> None:
    """Raise TrainingError if the run has used up its hours or money before this stage."""
    budget = job.options.budget
    if budget.hours is not None and seconds_spent(job.run_folder) / 3600 >= budget.hours:
        raise TrainingError(
            "budget.spent",
            f"The budget of {budget.hours:g} hours is spent before stage {job.stage}. Raise it to continue.",
        )
    if budget.money is not None and (spent := money_spent(job.run_id, job.warehouse)) >= budget.money:
        raise TrainingError(
            "budget.spent",
            f"The budget of ${budget.money:g} is spent before stage {job.stage} (${spent:.2f}). Raise it to continue.",
        )


class BudgetGuard:
    """A check of the budget while a stage's process works. It is cheap: one comparison, and an occasional query."""

    def __init__(self, job: StageJob, *, money_every: float = MONEY_EVERY_SECONDS) -> None:
        """money_every: seconds between two queries."""
        self._job, self._budget, self._money_every = job, job.options.budget, money_every
        self._began = time.monotonic()
        self._before = 0.0 if self._budget.hours is None else seconds_spent(job.run_folder)
        self._due = self._began + money_every
        self._unfinished = job.result() if job.finished() is None else None

    def __call__(self) -> None:
        """Raise TrainingError if the budget is spent, unless the stage has left a result.

        An evaluation with rejected trajectories is repeated, and its earlier result does not count as a new one.
        """
        why = self._spent()
        if why is not None and self._job.result() in (None, self._unfinished):
            raise TrainingError(
                "budget.spent",
                f"{why} in stage {self._job.stage}. Raise it and run again, and the stage continues where it stopped.",
            )

    def _spent(self) -> str | None:
        now, hours, money = time.monotonic(), self._budget.hours, self._budget.money
        if hours is not None and self._before + now - self._began >= hours * 3600:
            return f"The budget of {hours:g} hours is spent"
        if money is None or now < self._due:
            return None
        self._due = now + self._money_every
        try:
            spent = money_spent(self._job.run_id, self._job.warehouse)
        except (UserRLError, duckdb.Error, OSError):
            return None  # a temporary read error is no reason to stop; the next check comes within seconds
        return f"The budget of ${money:g} is spent (${spent:.2f})" if spent >= money else None


def seconds_spent(run_folder: Path) -> float:
    """Return the seconds that a run's stages have worked, from their results or from unfinished stages' progress lines."""
    folders = [*run_folder.glob("stages/[!.]*"), *run_folder.glob(f"{EARLIER}/*")]
    return sum(_seconds_of(stage) for stage in folders if stage.is_dir())


def money_spent(run_id: str, warehouse: Path) -> float:
    """Return the cost of the run's model calls so far, in US dollars."""
    if not warehouse.is_dir():
        return 0.0
    with open_warehouse(warehouse, run=run_id) as opened:
        question = "select coalesce(sum(price), 0) from model_calls_all where run_id = $run"
        return float(opened.sql(question, run=run_id).fetchall()[0][0])


def _seconds_of(stage: Path) -> float:
    """Sum a stage's seconds over its attempts. Each attempt counts from 0, so a smaller number starts the next attempt."""
    total = last = 0.0
    for line in GrowingLines(stage / "progress.jsonl"):
        seconds = float(line.get("seconds", 0.0))
        total += last if seconds < last else 0.0
        last = seconds
    written = read_json(stage / "result.json")
    # The result's seconds are those of the last attempt, from start to end.
    return total + max(last, Result.model_validate(written["value"]).seconds if written else 0.0)
