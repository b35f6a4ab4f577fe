"""The endings of runs: the last step compared with the best one, and whether it held its level (query ``run_endings``).

Lists, reports, the page and `userrl compare` use this one rule for collapsed seeds. The alarm ``validation_fell`` is
stricter, because it may stop a run. This rule also applies after a single high validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from userrl_core.number_format import number
from warehouse import Warehouse

COLLAPSED = "collapsed"


@dataclass(frozen=True, slots=True)
class Ending:
    """The ending of a run or of one branch. best, last: mean validation scores; held_out: held-out ones, if both were
    evaluated.

    word: collapsed, held, or "" if unknown. fall: best − last, as a mean over ``tasks`` tasks (of the evaluation, if there is
    one). error: standard error of the paired difference.
    """

    branch: str
    best_step: int
    best: float
    last_step: int
    last: float
    held_out: tuple[float, float] | None
    tasks: int | None
    fall: float | None
    error: float | None
    word: str

    def sentence(self) -> str:
        """Return the sentence for a report and a page."""
        label = self.branch or "RL"
        if self.best_step == self.last_step:
            return f"{label}: the last step, {self.last_step}, is the best on validation ({number(self.last)})."
        (best, last), tasks = self.held_out or (self.best, self.last), "held-out" if self.held_out else "validation"
        verb = {COLLAPSED: " collapsed", "held": " held"}.get(self.word, "")
        error = "" if self.error is None else f" ± {number(self.error)}"
        fall = "" if self.fall is None else f": {number(-self.fall, sign=True)}{error} over {self.tasks} tasks"
        return (
            f"{label}{verb}: the last step, {self.last_step}, scores {number(last)} on {tasks} tasks, the best checkpoint, step "
            f"{self.best_step}, {number(best)}{fall}."
        )


def endings(warehouse: Warehouse, run_id: str | None = None) -> dict[str, list[Ending]]:
    """Return the endings of each run's branches, largest fall first. Runs without a validation are left out."""
    by_run: dict[str, list[Ending]] = {}
    for row in warehouse.rows("FROM run_endings(run := $run)", run=run_id):
        by_run.setdefault(row["run_id"], []).append(_ending(row))
    return {
        run: sorted(branch_endings, key=lambda ending: -(ending.fall or 0.0)) for run, branch_endings in by_run.items()
    }


def in_a_word(run_endings: Sequence[Ending]) -> str:
    """Summarise a run's ending: ``collapsed``, ``held`` or "". Collapsed branches are named with their best and last score."""
    if fallen := [ending for ending in run_endings if ending.word == COLLAPSED]:
        of_branch = (
            f"{ending.branch} {COLLAPSED} {number(ending.best, 2)} → {number(ending.last, 2)}" for ending in fallen
        )
        return ", ".join(of_branch) if fallen[0].branch else COLLAPSED
    return next((ending.word for ending in run_endings if ending.word), "")


def _ending(row: dict[str, Any]) -> Ending:
    evaluated = row["held_out_best"] is not None
    return Ending(
        row["branch"] or "",
        row["best_step"],
        row["best"],
        row["last_step"],
        row["last"],
        (row["held_out_best"], row["held_out_last"]) if evaluated else None,
        row["tasks"],
        row["fall"],
        row["stderr"],
        row["ending"] or "",
    )
