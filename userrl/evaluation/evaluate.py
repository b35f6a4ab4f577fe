"""``userrl.evaluate``: evaluation on held-out tasks or a suite. Several policies, users or horizons make a grid."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from curricula.suites import load_suite
from userrl.evaluation.planned import evaluate_here, plan_evaluation, refuse_temperature
from userrl.machine.foreign_text import plain
from userrl.machine.notebook import Printed, Tabular
from userrl.reports.run_report import RunReport
from userrl.run.request import EvaluateRequest
from userrl.run.scores import ScoreRow, score_rows
from userrl_core.number_format import number

if TYPE_CHECKING:
    from userrl.evaluation.grid import GridResult


def evaluate(
    who: str | Sequence[str] = (),
    *,
    suite: str | None = None,
    model: str | dict[str, Any] | None = None,
    base_url: str | None = None,
    user: str | dict[str, Any] | Sequence[str | dict[str, Any]] | None = None,
    recipe: str = "auto",
    profile: str = "auto",
    gyms: Sequence[str] | None = None,
    turns: int | str | Sequence[int] | None = None,
    tasks: int | None = None,
    attempts: int | None = None,
    temperature: float | None = None,
    seed: int = 0,
    concurrency: int | None = None,
    dollars: float | None = None,
    hours: float | None = None,
    fresh: bool = False,
    out: str | None = None,
    progress: bool = True,
) -> ScoredEvaluation | GridResult:
    """Evaluate on held-out tasks or a suite, and return the scores. Called again, it continues a stopped evaluation.

    who: a run (its best checkpoint), a checkpoint's folder or ``demonstrator``; by default the latest run. model: a served
    model instead, by name or with options of its server (``{"model": "m", "timeout": 300}``). turns: maximum number of
    agent turns, or several: ``"4,8,16"``, ``"4..32"`` (doubling). out: a .csv file for the plot data; the plot is an
    .svg file next to it. Several policies, users or turns give a grid, and so does out. dollars, hours: limits of the
    evaluation. Raises ConfigError, CheckpointError or TrainingError with one sentence.
    """
    from curricula.validation import validated
    from userrl.evaluation.grid import Axes, Grid, horizons, play
    from userrl.machine.home import quiet_process
    from userrl.run.progress import ProgressLine
    from userrl_core.errors import ConfigError

    quiet_process()
    players = (who,) if isinstance(who, str) else tuple(who)
    if model is not None and players:
        raise ConfigError(
            "argument.conflict",
            f"Both the served model {model} and {players[0]} were named as the agent. Name one of them.",
        )
    request = {
        "suite": suite,
        "recipe": recipe,
        "profile": profile,
        "gyms": list(gyms) if gyms else None,
        "tasks": tasks,
        "attempts": attempts,
        "temperature": temperature,
        "model": model,
        "base_url": base_url,
        "seed": seed,
        "concurrency": concurrency,
        "budget": {"money": dollars, "hours": hours} if dollars is not None or hours is not None else None,
        "fresh": fresh,
    }
    users = (user,) if user is None or isinstance(user, (str, dict)) else tuple(user)
    axes = Axes(players or ("latest",), users or (None,), horizons(turns, suite) or (None,))
    grid = Grid(validated(EvaluateRequest, request, "evaluate"), axes)
    refuse_temperature(grid.base, axes.who)
    line = ProgressLine() if progress else None
    told: dict[str, Any] = {} if line is None else {"progress": partial(line, "evaluate"), "say": line.say}
    with contextlib.nullcontext() if line is None else line.alive("loading, waiting, or writing the report"):
        if grid.single is not None and out is None:
            return score(grid.single, **told)
        return play(grid, out=out, **told)


@dataclass(frozen=True, slots=True)
class ScoredEvaluation(Printed, Tabular):
    """The scores of one evaluation. suite: the suite's label, None if the recipe's tasks were played."""

    run: str
    suite: str | None
    rows: tuple[ScoreRow, ...]
    report: RunReport

    @property
    def scored(self) -> bool:
        """Return whether any trajectory was scored."""
        return any(row.score is not None for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return the run's report, the suite and the rows as JSON."""
        report_json = {**self.report.model_dump(mode="json"), "suite": self.suite}
        return {**report_json, "rows": [row.model_dump() for row in self.rows]}

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the scores, one row per actor and gym, with 95 % limits over tasks."""
        return [{"run": self.run, **row.model_dump(exclude={"more"}), **row.more} for row in self.rows]

    def __str__(self) -> str:
        return "\n".join([*(line for row in self.rows for line in self._lines(row)), self._query()])

    def _lines(self, row: ScoreRow) -> list[str]:
        unreadable = f", {row.unreadable} with an unreadable call" if row.unreadable else ""
        counts = f"({row.trajectories} trajectories{unreadable}, {row.rejected} rejected)"
        of = f"  {plain(row.tier)}" if row.tier else ""
        lines = [f"{plain(row.actor)}  {row.gym}{of}  {row.interval()}  {counts}"]
        if row.tier:
            return [*lines, *_further(row)]
        entry = self.report.table.get(row.actor, {}).get(row.gym)
        reasons = {} if entry is None else dict(entry.reasons)
        lines += [f"  rejected ({count} times): {plain(reason)}" for reason, count in reasons.items()]
        lines.append(f"  {plain(row.setting())}")
        return [*lines, *_further(row)]

    def _query(self) -> str:
        return f"all conversations: userrl sql \"from trajectories where run_id = '{self.run}'\""


def _further(row: ScoreRow) -> list[str]:
    """Return the line of a row's other metrics, if it has any."""
    return ["  " + ", ".join(f"{key} {number(value, 4)}" for key, value in row.more.items())] if row.more else []


def score(
    request: EvaluateRequest,
    progress: Callable[[dict[str, Any]], None] = lambda line: None,
    say: Callable[..., None] = lambda *args: None,
) -> ScoredEvaluation:
    """Run or continue one evaluation, and return its scores. progress, say: as in `evaluate_here`.

    Raises ConfigError or CheckpointError if it cannot run here.
    """
    suite = load_suite(request.suite) if request.suite else None
    planned = plan_evaluation(request)
    report = evaluate_here(planned, progress, say)
    gyms = planned.plan.recipe.evaluation_gyms
    more = (suite.metrics, suite.categories) if suite else ()
    rows = score_rows(report.run, planned.actors, gyms, *more)
    return ScoredEvaluation(report.run, suite.label if suite else None, tuple(rows), report)
