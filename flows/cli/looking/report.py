"""``userrl report``: the results of a run."""

from __future__ import annotations

import sys

from flows.cli.arguments import Html, Json, RunName
from flows.cli.terminal import page_text, plain_json


def report(run: RunName = "latest", html: Html = None, as_json: Json = False) -> None:
    """Show a run's results: demonstrator, SFT and RL side by side on held-out tasks.

    For a run without a report, show its progress and exit with 1. latest: the newest run that has a report. people:
    conversations of people compared with simulated users. An imported run has a report of scores, pass^k and costs.

    Example: userrl report latest --html report.html
    """
    from userrl.reports.find_report import report_or_progress
    from userrl.reports.run_so_far import UnfinishedRun

    run_report = report_or_progress(run)
    if isinstance(run_report, UnfinishedRun):
        if html is None and not as_json:
            print(page_text(run_report.document()), end="")
        raise run_report.problem
    if run_report.note:
        print(run_report.note, file=sys.stderr)
    if html is not None:
        print(f"wrote {', '.join(map(str, run_report.write(html)))}", file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(plain_json(run_report.as_json(), indent=1))
    elif html is None:
        print(page_text(run_report.document()), end="")
