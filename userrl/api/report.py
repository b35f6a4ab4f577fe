"""``userrl.report``: a run's report."""

from __future__ import annotations

from userrl.api.train import TrainedRun


def report(run: str = "latest") -> TrainedRun:
    """Return a finished run of this home with its report. run: an id or its beginning, a name, or ``latest``.

    Raises ConfigError for a run without a report.
    """
    from userrl.reports.run_report import read_report
    from userrl.run.run import find

    run_found = find(run)
    return TrainedRun(run_found.id, run_found.folder, read_report(run_found))
