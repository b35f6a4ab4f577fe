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
    import userrl
    from userrl.reports.run_so_far import UnfinishedRun
    from userrl.reports.trained_run import TrainedRun

    run_report = userrl.report(run)
    if isinstance(run_report, TrainedRun) and run_report.newer is not None:
        state = f"{run_report.newer.id} has no report yet (state: {run_report.newer.status.state})"
        print(f"{state}. Showing the newest run that has one.", file=sys.stderr)
    if as_json:
        print(plain_json(run_report.as_json(), indent=1))
    elif html is not None:
        print(f"wrote {', '.join(map(str, run_report.write(html)))}")
    else:
        print(page_text(run_report.document()), end="")
        if isinstance(run_report, UnfinishedRun):
            raise run_report.problem
