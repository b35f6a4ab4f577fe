"""The endings of runs and branches: the last step compared with the best checkpoint and with the cold start.

Lists, reports, the page and `userrl compare` use the query ``run_endings`` for collapsed seeds, and
`analysis.measure.outcome` for the other outcomes. The alarm ``validation_fell`` is stricter than a collapse, because it may
stop a run. A collapse is also called after a single high validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from analysis.measure.outcome import COLLAPSED, IMPROVED, NO_BETTER, TRAINED, WORSE, Ended, outcome, read_outcome
from userrl_core.number_format import number, with_limits
from userrl_core.records import branch_of

if TYPE_CHECKING:
    from analysis.measure.interval import Interval
    from warehouse import Warehouse

STARTS = ("SFT", "start")
"""The evaluation's names for the policy that RL started from: the cold start, or the weights of a run without one."""

THE_START = "the start"
"""The name of that policy among validations."""

ByTask = Mapping[str, Sequence[float]]
"""The scores of each task's attempts."""


@dataclass(frozen=True, slots=True)
class Ending(Ended):
    """The ending of a run or of one branch, with its figures. held_out: held-out scores of best and last, if both were
    evaluated.

    fall: best − last, as a mean over ``tasks`` tasks (of the evaluation, if there is one). error: standard error of the
    paired difference. start: name and mean score of the policy that RL started from. change: last − best, paired by task, None
    if they are the same step.
    """

    best_step: int
    last_step: int
    held_out: tuple[float, float] | None
    tasks: int | None
    fall: float | None
    error: float | None
    start: tuple[str, float] | None = None
    change: Interval | None = None
    gain: Interval | None = field(default=None, kw_only=True)

    @property
    def chose_start(self) -> bool:
        """Whether validation chose the policy that RL started from."""
        return self.best_step == 0 and self.last_step > 0

    def sentence(self) -> str:
        """Return the sentence for a report and a page."""
        if self.word == COLLAPSED:
            error = "" if self.error is None else f" ± {number(self.error)}"
            return (
                f"{self.label} collapsed: the last step, {self.last_step}, scores {number(self._last)} on {self._tasks} tasks, "
                f"the best checkpoint, step {self.best_step}, {number(self._best)}: "
                f"{number(-(self.fall or 0.0), sign=True)}{error} over {self.tasks} tasks."
            )
        over = f"{self.gain.units} {self._tasks} tasks" if self.gain else f"{self._tasks} tasks"
        scores = f"he last step, {self.last_step}, scores {number(self._last)} on {over}"
        best = ""
        if self.change is not None:
            best = f", the best checkpoint, step {self.best_step}, {number(self._best)}: {with_limits(self.change, sign=True)}"
        start = ""
        if self.start is not None and self.gain is not None:
            start = f", {self.start[0]} {number(self.start[1])}: {with_limits(self.gain, sign=True)}"
        if self.chose_start:
            name = self.start[0] if self.start else THE_START
            return f"{self.label} chose step 0: nothing was gained over {name}. T{scores}{start or best}."
        if self.word == IMPROVED:
            return f"{self.label} {self._of_start}: t{scores}{start}."
        if self.word == NO_BETTER:
            worse = " and worse" if self.gain is not None and self.gain.high < 0 else ""
            return f"{self.label} is {self._of_start}{worse}: t{scores}{start}."
        if self.word == WORSE:
            return f"{self.label} is {WORSE}: t{scores}{best}{start.replace(',', ';', 1)}."
        return f"{self.label}{self.word and f' {self.word}'}: t{scores}{best}."

    @property
    def _of_start(self) -> str:
        """The outcome. A run without a cold start is compared with its start."""
        return self.word if self.start is None or self.start[0] == "SFT" else self.word.replace("cold start", "start")

    @property
    def _tasks(self) -> str:
        return "held-out" if self._evaluated else "validation"

    @property
    def _evaluated(self) -> bool:
        return self.held_out is not None

    @property
    def _best(self) -> float:
        return self.held_out[0] if self.held_out else self.best

    @property
    def _last(self) -> float:
        return self.held_out[1] if self.held_out else self.last


def endings(warehouse: Warehouse, run_id: str | None = None) -> dict[str, list[Ending]]:
    """Return the endings of each run's branches, largest fall first. Runs without a validation are left out."""
    rows = warehouse.rows("FROM run_endings(run := $run)", run=run_id)
    by_run: dict[str, list[Ending]] = {}
    for ending in _endings(warehouse, rows, run_id):
        by_run.setdefault(ending[0], []).append(ending[1])
    return {
        run: sorted(branch_endings, key=lambda ending: -(ending.fall or 0.0)) for run, branch_endings in by_run.items()
    }


def last_step(label: str) -> str:
    """Return the evaluation's name of the last checkpoint if another one was best on validation."""
    return f"{label} last step"


def _endings(
    warehouse: Warehouse, rows: Sequence[Mapping[str, Any]], run_id: str | None
) -> Iterator[tuple[str, Ending]]:
    evaluated = _evaluated(warehouse, rows, run_id)
    played = [_held_out(row, evaluated) for row in rows]
    validated = _validated(warehouse, [row for row, ends in zip(rows, played, strict=True) if ends is None])
    for row, ends in zip(rows, played, strict=True):
        yield row["run_id"], _ending(row, ends or _on_validation(row, validated))


@dataclass(frozen=True, slots=True)
class _Ends:
    """Scores by task of the start, the best checkpoint and the last step. name: of the start."""

    name: str
    start: ByTask
    best: ByTask
    last: ByTask


def _evaluated(
    warehouse: Warehouse, rows: Sequence[Mapping[str, Any]], run_id: str | None
) -> dict[tuple[str, str], ByTask]:
    """Return the held-out scores of starts, best checkpoints and last steps, by run and policy."""
    branches = {row["branch"] or TRAINED for row in rows}
    text = """SELECT run_id, policy, step, concat_ws('/', gym, task_id, task_version) AS task, scores FROM task_scores(run := $run)
              WHERE list_contains($policies, policy)"""
    policies = [*STARTS, *branches, *(last_step(branch) for branch in branches)]
    scores: dict[tuple[str, str], dict[str, Sequence[float]]] = {}
    last_steps = {(row["run_id"], row["branch"] or TRAINED, row["last_step"]) for row in rows}
    # `rows` and not `sql`: without pyarrow, whose import takes longer than the query.
    for score_row in warehouse.rows(text, run=run_id, policies=policies) if rows else ():
        run, policy, step, task, attempts = score_row.values()
        scores.setdefault((run, policy), {})[task] = attempts
        if (run, policy, step) in last_steps:  # the best checkpoint is the last step, and is evaluated once
            scores.setdefault((run, last_step(policy)), {})[task] = attempts
    return dict(scores)


def _held_out(row: Mapping[str, Any], evaluated: Mapping[tuple[str, str], ByTask]) -> _Ends | None:
    """Return the held-out scores of a branch, or None if its last step was not evaluated."""
    run, branch = row["run_id"], row["branch"] or TRAINED
    best = evaluated.get((run, branch), {})
    last = evaluated.get((run, last_step(branch)), best if row["best_step"] == row["last_step"] else {})
    name = next((name for name in STARTS if (run, name) in evaluated), "")
    return _Ends(name, evaluated.get((run, name), {}), best, last) if last else None


def _validated(
    warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, str, int], dict[str, Sequence[float]]]:
    """Return the validation scores at the start, the best and the last validation, by run, branch and step."""
    run_steps = {f"{row['run_id']} {step}" for row in rows for step in (0, row["best_step"], row["last_step"])}
    text = """SELECT run_id, stage, step, concat_ws('/', gym, task_id, task_version) AS task, list(score ORDER BY attempt) AS scores
              FROM trajectories WHERE phase = 'validate' AND admitted AND score IS NOT NULL
              AND list_contains($run_steps, run_id || ' ' || step) GROUP BY ALL"""
    scores: dict[tuple[str, str, int], dict[str, Sequence[float]]] = {}
    for score_row in warehouse.rows(text, run_steps=list(run_steps)) if run_steps else ():
        run, stage, step, task, attempts = score_row.values()
        scores.setdefault((run, branch_of(stage), step), {})[task] = attempts
    return scores


def _on_validation(
    row: Mapping[str, Any], validated: Mapping[tuple[str, str, int], dict[str, Sequence[float]]]
) -> _Ends:
    def at(step: int) -> ByTask:
        run, branch = row["run_id"], row["branch"] or ""
        return {**validated.get((run, "", step), {}), **validated.get((run, branch, step), {})}

    return _Ends(THE_START, at(0), at(row["best_step"]), at(row["last_step"]))


def _ending(row: Mapping[str, Any], ends: _Ends) -> Ending:
    held_out = None if row["held_out_best"] is None else (row["held_out_best"], row["held_out_last"])
    if held_out is None and ends.name != THE_START:
        held_out = (mean(ends.best or ends.last), mean(ends.last))
    same = row["best_step"] == row["last_step"]
    gain = paired(ends.start, ends.last) if row["last_step"] > 0 else None
    change = None if same else paired(ends.best, ends.last)
    stored = read_outcome(row["ending"])
    outcome_name = outcome(gain, change, collapsed=stored == COLLAPSED) if stored or gain else ""
    return Ending(
        row["branch"] or "",
        outcome_name,
        row["best"],
        row["last"],
        row["best_step"],
        row["last_step"],
        held_out,
        row["tasks"],
        row["fall"],
        row["stderr"],
        None
        if gain is None
        else (ends.name, mean({task: ends.start[task] for task in ends.start if task in ends.last})),
        change,
        gain=gain,
    )


def mean(scores: ByTask) -> float:
    """Return the mean over tasks of their mean scores. There must be a task."""
    return fmean(fmean(attempts) for attempts in scores.values())


def paired(a: ByTask, b: ByTask) -> Interval | None:
    """Return b minus a over the tasks of both, or None if there are fewer than two."""
    # SciPy takes half a second to import, which a list of runs without endings need not pay.
    from analysis.measure.checkpoints import difference_interval

    tasks = sorted(a.keys() & b.keys())
    return difference_interval([a[task] for task in tasks], [b[task] for task in tasks]) if len(tasks) > 1 else None
