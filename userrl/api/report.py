"""``userrl.report``: a run's report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from userrl.api.train import TrainedRun

if TYPE_CHECKING:
    from userrl.reports.import_report import ImportedRun


def report(run: str = "latest") -> TrainedRun | ImportedRun:
    """Return a finished or an imported run of this home with its report. run: an id or its beginning, a name, or ``latest``.

    Raises ConfigError for a run without a report.
    """
    from userrl.reports.import_report import find_imported
    from userrl.reports.run_report import read_report
    from userrl.run.run import find
    from userrl_core.errors import ConfigError

    try:
        run_found = find(run)
    except ConfigError:
        if imported := find_imported(run):
            return imported
        raise
    return TrainedRun(run_found.id, run_found.folder, read_report(run_found))
