"""``userrl plan-study`` in Python: the cost of claims, cross-play studies and sweeps before they start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from userrl.machine.notebook import Printed

if TYPE_CHECKING:
    import polars as pl

    from userrl.claims.study_plan import StudyPlan

ASSUMED = (
    "CPU-hours are within a factor of 1.5 on the published claims, to which they were fitted, and on half of the recipes in "
    "data/results (BabyAI took five times as long). GPU-hours are arithmetic, without evaluations. Served models come on top."
)


@dataclass(frozen=True, slots=True)
class PlannedStudies(Printed):
    """The plans of studies on a number of workers."""

    plans: tuple[StudyPlan, ...]
    workers: int

    def as_json(self) -> list[dict[str, Any]]:
        """Return one row per study, and the total of several."""
        from userrl.claims.study_plan import in_total

        rows = [plan.as_json(self.workers) for plan in self.plans]
        return [*rows, in_total(self.plans).as_json(self.workers)] if len(rows) > 1 else rows

    def to_polars(self) -> pl.DataFrame:
        """Return one row per study."""
        import polars as pl

        return pl.DataFrame([plan.as_json(self.workers) for plan in self.plans])

    def __str__(self) -> str:
        from userrl.reports.document import Document, TableBlock

        head = ("study", "runs", "shared", "CPU-h", "GPU-h", "RL tokens", "turns", "MB", "hours", "critical path")
        rows = tuple(
            (
                row["study"],
                f"{row['runs']:,}",
                f"{row['shared_runs']:,}",
                f"{row['cpu_hours']:,.2f}",
                f"{row['gpu_hours']:,.1f}",
                f"{row['tokens']:,}",
                f"{row['turns']:,}",
                f"{row['bytes'] / 1e6:,.0f}",
                f"{row['hours']:,.2f}",
                f"{row['critical_hours']:,.2f}",
            )
            for row in self.as_json()
        )
        note = f"hours: from start to end on {self.workers} worker{'s' * (self.workers > 1)}. {ASSUMED}"
        return Document("", (TableBlock(head, rows, note),)).text()


def plan_study(*studies: str, seeds: int | None = None, workers: int = 2) -> PlannedStudies:
    """Return runs, hours, tokens, storage and critical path of studies, without starting a run.

    studies: claims, checks of claims, search spaces, or YAML files of claims, cross-play studies or sweeps. seeds: per arm, by
    default 8 or the study's own number. workers: parallel runs, each on two quiet cores or the GPUs of its profile. Raises
    ConfigError with one sentence.
    """
    from userrl.claims.study_plan import plan_studies

    return PlannedStudies(tuple(plan_studies(studies, seeds=seeds)), workers)
