"""The scores of one finished evaluation, and their text form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curricula.suites import load_suite
from userrl.evaluation.planned import evaluate_here, plan_evaluation
from userrl.machine.foreign_text import plain
from userrl.machine.notebook import Printed
from userrl.reports.run_report import RunReport
from userrl.run.request import EvaluateRequest
from userrl.run.scores import ScoreRow, score_rows
from userrl_core.number_format import number

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class ScoredEvaluation(Printed):
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

    def to_polars(self) -> pl.DataFrame:
        """Return the scores, one row per actor and gym, with 95 % limits over tasks."""
        import polars as pl

        rows = [{"run": self.run, **row.model_dump(exclude={"more"}), **row.more} for row in self.rows]
        return pl.DataFrame(rows, infer_schema_length=None)

    def __str__(self) -> str:
        return "\n".join([*(line for row in self.rows for line in self._lines(row)), self._query()])

    def _lines(self, row: ScoreRow) -> list[str]:
        counts = f"({row.trajectories} trajectories, {row.rejected} rejected)"
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


def score(request: EvaluateRequest, progress: Callable[[dict[str, Any]], None] = lambda line: None) -> ScoredEvaluation:
    """Run or continue one evaluation, and return its scores. progress: called with every progress line.

    Raises ConfigError or CheckpointError if it cannot run here.
    """
    suite = load_suite(request.suite) if request.suite else None
    planned = plan_evaluation(request)
    report = evaluate_here(planned, progress)
    gyms = planned.plan.recipe.evaluation_gyms
    more = (suite.metrics, suite.categories) if suite else ()
    rows = score_rows(report.run, planned.actors, gyms, *more)
    return ScoredEvaluation(report.run, suite.label if suite else None, tuple(rows), report)
