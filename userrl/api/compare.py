"""``userrl.compare``: a comparison of checkpoints or recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from userrl.reports.comparison_report import ComparisonReport
    from userrl.reports.document import Document


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """A comparison: its report, and the document that shows it."""

    report: ComparisonReport
    document: Document

    def as_json(self) -> dict[str, Any]:
        """Return the whole report as JSON."""
        from userrl.reports.comparison_document import comparison_sentences
        from userrl.reports.comparison_report import as_json

        return as_json(self.report, comparison_sentences(self.report))

    def to_polars(self) -> pl.DataFrame:
        """Return the mean scores with 95 % limits: one row per side, checkpoint (best, last) and table row."""
        import polars as pl

        rows = [
            {
                "side": score.side,
                "which": score.which,
                "row": score.row,
                "score": score.interval.estimate,
                "low": score.interval.low,
                "high": score.interval.high,
                "units": score.interval.units,
            }
            for score in self.report.comparison.scores
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def write(self, path: str) -> list[Path]:
        """Write the comparison as an HTML page or as Markdown, and return the paths."""
        return list(self.document.write(Path(path)))

    def __str__(self) -> str:
        return self.document.text()


def compare(*sides: str) -> ComparedSides:
    """Compare the second and later sides with the first.

    A side is a run (``latest``, ``RUN:SFT``), a group of runs (``recipe=naive-sum,seed=*``), a served model
    (``model=gpt-4o``) or ``published:MODEL``. Runs are compared over their tasks, recipes over their seeds. Published rows
    are shown and never subtracted. Raises ConfigError with one sentence.
    """
    from userrl.machine.home import warehouse_dir
    from userrl.reports.comparison_document import comparison_document
    from userrl.reports.comparison_report import comparison_report
    from userrl.reports.sides import find_sides
    from warehouse import open_warehouse

    with open_warehouse(warehouse_dir()) as opened:
        ours, published = find_sides(opened, list(sides))
        report = comparison_report(opened, ours)
    return ComparedSides(report, comparison_document(report, published))
