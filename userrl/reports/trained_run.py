"""A trained run with its report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from userrl.machine.home import warehouse_dir
from userrl.reports import people_report
from userrl.reports.card import with_card
from userrl.reports.curves import curve_points
from userrl.reports.document import Document, section
from userrl.reports.report import Report
from userrl.reports.run_report import REPORT_FILE, RunReport
from userrl.reports.run_summary import run_summary
from userrl.reports.users.users_section import TITLE, audited_json, users_of
from userrl.run.run import Run, find
from userrl_core.json_files import read_json
from warehouse import open_warehouse
from warehouse.files.layout import run_dir

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class TrainedRun(Report):
    """A trained run. report: its held-out scores and the rest of its report. newer: a newer run, which has no report yet."""

    run: str
    folder: Path
    report: RunReport
    newer: Run | None = None

    @property
    def note(self) -> str:
        """Which newer run has no report yet, or ""."""
        if self.newer is None:
            return ""
        return f"{self.newer.id} has no report yet (state: {self.newer.status.state}). Showing the newest run that has one."

    @property
    def checkpoint(self) -> Path | None:
        """The folder of the checkpoint that validation chose. It loads with transformers."""
        return None if self.report.checkpoint is None else Path(self.report.checkpoint)

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the held-out scores, one row per actor (demonstrator, SFT, RL) and gym."""
        return [
            {"run": self.run, "actor": actor, "gym": gym, **row.model_dump(exclude={"reasons"})}
            for actor, gyms in self.report.table.items()
            for gym, row in gyms.items()
        ]

    def curve(self) -> pl.DataFrame:
        """Return the learning curve in training and validation: mean score by phase, stage and step."""
        with open_warehouse(warehouse_dir(), run=self.run) as opened:
            curve = opened.query("learning_curve", run=self.run, phase=None)
            by_step: pl.DataFrame = curve.filter("phase IN ('train', 'validate')").pl()
            return by_step

    def checkpoints(self, *, load: bool = False) -> pl.DataFrame:
        """Return the checkpoints on disk in order of training: stage, step, validation score, chosen, megabytes, problem, path.

        problem: why transformers cannot load it, or "". load: load each with transformers, not only check its files.
        """
        import polars as pl

        from userrl.reports.checkpoints import listed_checkpoints

        columns = {
            "id": pl.String, "stage": pl.String, "step": pl.Int64, "score": pl.Float64, "chosen": pl.Boolean,
            "megabytes": pl.Float64, "problem": pl.String, "path": pl.String,
        }  # fmt: skip
        rows, _ = listed_checkpoints(find(self.run), load=load)
        return pl.DataFrame([row.model_dump(mode="json") for row in rows], schema=columns)

    def plot(self, path: str | Path, *beside: str) -> Path:
        """Draw training and validation scores by step into a .png, .svg or .pdf file, and return its path.

        beside: further runs or groups of runs to draw, as `compare` takes them. Raises ConfigError with one sentence.
        """
        from userrl.reports.plots import plot_curves

        return plot_curves([self.run, *beside], Path(path))

    def document(self) -> Document:
        """Return the summary, the learning curve, the users, and people beside simulated users if people played."""
        if not warehouse_dir().is_dir():
            return run_summary(self.report)
        # Conversations of people are compared with those of any run.
        of_people = run_dir(warehouse_dir(), people_report.RUN).is_dir()
        with open_warehouse(warehouse_dir(), run=None if of_people else self.run) as warehouse:
            summary = run_summary(with_card(self.report, warehouse), curve_points(warehouse, self.run))
            blocks = [*summary.blocks, *section(TITLE, users_of(warehouse, self.run))]
            blocks += section(people_report.TITLE, people_report.beside_simulated(warehouse, self.run))
        return Document(summary.title, tuple(blocks))

    def page(self) -> Document:
        """Return the page of the run."""
        from userrl.reports.run_document import run_document  # imported here: matplotlib

        with open_warehouse(warehouse_dir()) as warehouse:
            return run_document(self.report, warehouse)

    def as_json(self) -> dict[str, Any]:
        """Return the report with the audits of the run's users, if there are any."""
        users = audited_json(self.run)
        return {**(read_json(self.folder / REPORT_FILE) or {}), **({"users": users} if users else {})}
