"""A run's budget of hours and money: looked at before each stage, and while one runs.

Hours are those in which stages of the run worked, interrupted starts included: running a stopped run again does not refill
the purse. Money is the price of its model calls as far as prices are known, those of void turns included.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import duckdb

from flows.machine.home import warehouse_dir
from flows.run.job import Job, ProgressReader
from flows.run.run import read_json
from userrl_core.errors import TrainingError, UserRLError

BUDGETS = ("hours", "money")
MONEY_EVERY_SECONDS = 10.0


def check_budget(budget: Mapping[str, float], run_id: str, folder: Path, stage: str) -> None:
    """Raise TrainingError when a run has used up its hours or money before a stage. folder: the run's."""
    if "hours" in budget and seconds_spent(folder) / 3600 >= budget["hours"]:
        raise TrainingError(
            f"The budget of {budget['hours']:g} hours is spent before stage {stage}; raise it to go on."
        )
    if "money" in budget and (spent := money_spent(run_id, warehouse_dir())) >= budget["money"]:
        raise TrainingError(
            f"The budget of ${budget['money']:g} is spent before stage {stage} (${spent:.2f}); raise it to go on."
        )


class Purse:
    """Looks at the budget of a job's run while its process works. Cheap: one comparison, and a query every ten seconds."""

    def __init__(self, job: Job) -> None:
        self._job = job
        budget: Mapping[str, float] = job.options.get("budget") or {}
        self._hours, self._money = budget.get("hours"), budget.get("money")
        self._began = time.monotonic()
        self._before = 0.0 if self._hours is None else seconds_spent(job.folder.parents[1])
        self._due = self._began + MONEY_EVERY_SECONDS

    def __call__(self) -> None:
        """Raise TrainingError when it is spent; what the stage has finished meanwhile is not thrown away for that."""
        said = self._spent()
        if said is not None and self._job.result() is None:
            raise TrainingError(
                f"{said} in stage {self._job.stage}; raise it and run again, and the stage goes on from its last checkpoint."
            )

    def _spent(self) -> str | None:
        now = time.monotonic()
        if self._hours is not None and self._before + now - self._began >= self._hours * 3600:
            return f"The budget of {self._hours:g} hours is spent"
        if self._money is None or now < self._due:
            return None
        self._due = now + MONEY_EVERY_SECONDS
        try:
            spent = money_spent(self._job.run_id, self._job.warehouse)
        except (UserRLError, duckdb.Error, OSError):
            return None  # a moment's trouble with reading is no reason to stop; the next look is ten seconds away
        return f"The budget of ${self._money:g} is spent (${spent:.2f})" if spent >= self._money else None


def seconds_spent(folder: Path) -> float:
    """Seconds that the stages of a run have worked, from their results, or from the progress lines of unfinished ones."""
    return sum(_seconds(stage) for stage in folder.glob("stages/*") if stage.is_dir())


def money_spent(run_id: str, warehouse: Path) -> float:
    """US dollars of the run's model calls so far."""
    from warehouse import open_warehouse

    if not warehouse.is_dir():
        return 0.0
    with open_warehouse(warehouse) as opened:
        question = "select coalesce(sum(price), 0) from model_calls_all where run_id = $run"
        return float(opened.sql(question, run=run_id).fetchall()[0][0])


def _seconds(stage: Path) -> float:
    """Every start of a stage counts its seconds from 0, so that a smaller number begins the next start."""
    total = last = 0.0
    for line in ProgressReader(stage / "progress.jsonl"):
        seconds = float(line.get("seconds", 0.0))
        total += last if seconds < last else 0.0
        last = seconds
    found = read_json(stage / "result.json")
    # The result's seconds are those of the last start, from its first moment to its end.
    return total + max(last, float(found["value"].get("seconds", 0.0)) if found else 0.0)
