"""``userrl.report``: the report that a name means."""

from __future__ import annotations

from dataclasses import replace

from userrl.reports import people_report
from userrl.reports.import_report import find_imported
from userrl.reports.report import Report
from userrl.reports.run_report import has_report, read_report
from userrl.reports.run_so_far import UnfinishedRun
from userrl.reports.trained_run import TrainedRun
from userrl.run.run import Run, all_runs, find
from userrl_core.errors import ConfigError


def report(run: str = "latest") -> Report:
    """Return the report of a run of this home.

    run: an id or its beginning, a name, ``latest``, or ``people`` for people beside simulated users. latest: the newest run
    that has a report. Raises ConfigError for a run without a report.
    """
    shown = report_or_progress(run)
    if isinstance(shown, UnfinishedRun):
        raise shown.problem
    return shown


def report_or_progress(run: str) -> Report | UnfinishedRun:
    """Return the report of a run, and for a run without one its progress. Raises ConfigError for a name that means no run."""
    if run == people_report.RUN:
        return people_report.PeopleReport()
    try:
        stored_run = find(run)
    except ConfigError:
        if imported := find_imported(run):
            return imported
        raise
    if has_report(stored_run):
        return _trained(stored_run)
    finished = [candidate for candidate in all_runs() if has_report(candidate)] if run == "latest" else []
    return replace(_trained(finished[-1]), newer=stored_run) if finished else UnfinishedRun(stored_run)


def _trained(run: Run) -> TrainedRun:
    return TrainedRun(run.id, run.folder, read_report(run))
