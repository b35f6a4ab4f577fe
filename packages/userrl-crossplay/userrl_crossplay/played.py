"""A played cross-play study, as the command and a notebook show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from curricula.validation import validated
from userrl.machine.home import home, quiet_process
from userrl.machine.notebook import Printed, Tabular
from userrl.run.progress import log_line
from userrl.trials.processes import ProcessLauncher
from userrl_crossplay.document import cross_play_document
from userrl_crossplay.report import CrossPlayReport
from userrl_crossplay.study import CrossPlayRequest, play_study


@dataclass(frozen=True, slots=True)
class PlayedStudy(Printed, Tabular):
    """A cross-play study with its matrix and contrasts."""

    report: CrossPlayReport
    frame_types: ClassVar[Mapping[str, type] | None] = {"seed": int, "trained": str, "evaluated": str, "score": float}

    def as_json(self) -> dict[str, Any]:
        """Return the study's results as JSON."""
        return self.report.as_json()

    def frame_rows(self) -> list[dict[str, Any]]:
        """Return the scores, one row per seed, training population and evaluation population."""
        rows: list[dict[str, Any]] = self.report.as_json()["values"]
        return rows

    def __str__(self) -> str:
        page = home() / "claims" / self.report.study.name / f"{self.report.hash}.html"
        return f"{cross_play_document(self.report).text()}\npage: {page}, with .md, .svg and .json"


def play(values: Mapping[str, Any]) -> PlayedStudy:
    """Run the study that the fields of a `CrossPlayRequest` name. Raises ConfigError with one sentence."""
    quiet_process()
    return PlayedStudy(play_study(validated(CrossPlayRequest, values, "cross-play"), ProcessLauncher, log_line))
