"""``userrl.import_logs``: conversations of other tools as runs of this home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from userrl.reports.import_report import ImportedRun


def import_logs(path: str | Path, *, format: str = "auto", name: str = "") -> tuple[ImportedRun, ...]:
    """Import the conversations of a file as a run of this home, all of them or none.

    format: auto, tau2, tau-bench, inspect, verifiers, nemo-gym, openai-chat, sharegpt or userrl. name: the run's name, by
    default the file's name. Importing the same file again changes nothing. Our own exports may hold several runs, which
    keep their ids. Raises ConfigError with the place of the first problem.
    """
    from userrl.evaluation.imported import import_file

    return import_file(Path(path), format=format, name=name)
