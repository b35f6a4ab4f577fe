"""A played cross-play study, as the command and a notebook show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curricula.validation import validated
from userrl.machine.home import home, quiet_process
from userrl.machine.notebook import Printed
from userrl.run.progress import log_line
from userrl.trials.processes import ProcessLauncher
from userrl_crossplay.document import cross_play_document
from userrl_crossplay.report import CrossPlayReport
from userrl_crossplay.study import CrossPlayRequest, play_study

if TYPE_CHECKING:
    import polars as pl


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
        page = home() / "claims" / self.report.study.name / f"{self.report.hash}.html"
        return f"{cross_play_document(self.report).text()}\npage: {page}, with .md, .svg and .json"


def play(values: Mapping[str, Any]) -> PlayedStudy:
    """Run the study that the fields of a `CrossPlayRequest` name. Raises ConfigError with one sentence."""
    quiet_process()
    return PlayedStudy(play_study(validated(CrossPlayRequest, values, "cross-play"), ProcessLauncher, log_line))
