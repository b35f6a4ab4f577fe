"""``userrl.cross_play``: agents trained on populations of users, each evaluated on every population."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from userrl.machine.notebook import Printed

if TYPE_CHECKING:
    import polars as pl

    from userrl.crossplay.report import CrossPlayReport


@dataclass(frozen=True, slots=True)
class PlayedStudy(Printed):
    """A cross-play study with its matrix and contrasts."""

    report: CrossPlayReport

    def as_json(self) -> dict[str, Any]:
        """Return the study's results as JSON."""
        return self.report.as_json()

    def to_polars(self) -> pl.DataFrame:
        """Return the scores, one row per seed, training population and evaluation population."""
        import polars as pl

        schema = {"seed": pl.Int64, "trained": pl.String, "evaluated": pl.String, "score": pl.Float64}
        return pl.DataFrame(self.report.as_json()["values"], schema=schema)

    def __str__(self) -> str:
        from userrl.crossplay.document import cross_play_document
        from userrl.machine.home import home

        folder = home() / "claims" / self.report.study.name / f"{self.report.hash}.html"
        return f"{cross_play_document(self.report).text()}\npage: {folder}, with .md, .svg and .json"


def cross_play(file: str, *, seeds: int | None = None, parallel: int = 2) -> PlayedStudy:
    """Run a cross-play study and return its matrix. Called again, it continues where it stopped.

    file: the study's YAML file, which is registered before its first run. seeds: per training population; by default the
    study's number, and fewer give no verdict. Raises ConfigError with one sentence.
    """
    from curricula.validation import validated
    from userrl.crossplay.study import play_study
    from userrl.machine.home import quiet_process
    from userrl.run.progress import log_line
    from userrl.run.request import CrossPlayRequest
    from userrl.trials.processes import ProcessLauncher

    quiet_process()
    values = {"file": file, "seeds": seeds, "parallel": parallel}
    return PlayedStudy(play_study(validated(CrossPlayRequest, values, "cross-play"), ProcessLauncher, log_line))
