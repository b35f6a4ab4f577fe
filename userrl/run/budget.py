"""A run's budget of hours and money: looked at before each stage, and while one runs.

Hours are those in which stages of the run worked, interrupted starts included: running a stopped run again does not refill
the budget. Money is the price of its model calls as far as prices are known, those of void turns included.
"""

from __future__ import annotations

import time
from pathlib import Path

import duckdb

from userrl.run.job import StageJob
from userrl.run.results import Result
from userrl_core.errors import TrainingError, UserRLError
from userrl_core.json_files import GrowingLines, read_json
from warehouse import open_warehouse

MONEY_EVERY_SECONDS = 10.0


def check_budget(job: StageJob) -> None:
    """Raise TrainingError when the run has used up its hours or money before this stage."""
    budget = job.options.budget
    if budget.hours is not None and seconds_spent(job.run_folder) / 3600 >= budget.hours:
        raise TrainingError(
            f"The budget of {budget.hours:g} hours is spent before stage {job.stage}; raise it to go on."
        )
    if budget.money is not None and (spent := money_spent(job.run_id, job.warehouse)) >= budget.money:
        raise TrainingError(
            f"The budget of ${budget.money:g} is spent before stage {job.stage} (${spent:.2f}); raise it to go on."
        )


class BudgetGuard:
    """Looks at the budget of a job's run while its process works. Cheap: one comparison, and a query now and then."""

    def __init__(self, job: StageJob, *, money_every: float = MONEY_EVERY_SECONDS) -> None:
        """money_every: seconds between two queries."""
        self._job, self._budget, self._money_every = job, job.options.budget, money_every
        self._began = time.monotonic()
        self._before = 0.0 if self._budget.hours is None else seconds_spent(job.run_folder)
        self._due = self._began + money_every
        self._unfinished = job.result() if job.finished() is None else None

    def __call__(self) -> None:
        """Raise TrainingError when the budget is spent, unless the stage has left a result meanwhile.

        An evaluation with rejected trajectories is played again; its earlier result does not count as a new one.
        """
        why = self._spent()
        if why is not None and self._job.result() in (None, self._unfinished):
            raise TrainingError(
                f"{why} in stage {self._job.stage}; raise it and run again, and the stage goes on where it was."
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
            return None  # a moment's trouble with reading is no reason to stop; the next look is seconds away
        return f"The budget of ${money:g} is spent (${spent:.2f})" if spent >= money else None


def seconds_spent(run_folder: Path) -> float:
    """Seconds that the stages of a run have worked, from their results, or from the progress lines of unfinished ones."""
    return sum(_seconds_of(stage) for stage in run_folder.glob("stages/*") if stage.is_dir())


def money_spent(run_id: str, warehouse: Path) -> float:
    """US dollars of the run's model calls so far."""
    if not warehouse.is_dir():
        return 0.0
    with open_warehouse(warehouse, run=run_id) as opened:
        question = "select coalesce(sum(price), 0) from model_calls_all where run_id = $run"
        return float(opened.sql(question, run=run_id).fetchall()[0][0])


def _seconds_of(stage: Path) -> float:
    """Every start of a stage counts its seconds from 0, so that a smaller number begins the next start."""
    total = last = 0.0
    for line in GrowingLines(stage / "progress.jsonl"):
        seconds = float(line.get("seconds", 0.0))
        total += last if seconds < last else 0.0
        last = seconds
    written = read_json(stage / "result.json")
    # The result's seconds are those of the last start, from its first moment to its end.
    return total + max(last, Result.model_validate(written["value"]).seconds if written else 0.0)
