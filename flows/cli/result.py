"""The result of a run as `make run` prints it, and the next commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.cli.invocation import again
from flows.cli.terminal import plain
from userrl.machine.page_address import run_address
from userrl.reports.run_report import has_report, read_report
from userrl.reports.run_summary import run_summary
from userrl.run.run import Run


def show_result(run: Run | None, deployment: str, parameters: Mapping[str, Any]) -> None:
    """Print a run's report and the next commands. Print nothing for a run without a report."""
    if run is None or not has_report(run):
        return
    report = read_report(run)
    print("\n" + plain(run_summary(report.model_copy(update={"replaced": ()})).text()).rstrip())
    if count := len(report.replaced):
        print(f"{count} values of the recipe were replaced for this machine: .venv/bin/userrl report {run.id}")
    print(
        "\nTry next:\n"
        f"  .venv/bin/userrl sql \"select stage, step, trajectories, score from learning_curve(run := '{run.id}')\"\n"
        "  .venv/bin/userrl report latest\n"
        f"  .venv/bin/userrl view       # then {run_address(run.id)}\n"
        f"  {again(deployment, {**parameters, 'seed': run.info.seed + 1})}"
    )
