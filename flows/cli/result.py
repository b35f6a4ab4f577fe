"""The result of a run as `make run` prints it, and the next commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.cli.invocation import again
from flows.cli.terminal import page_text
from userrl.machine.home import warehouse_dir
from userrl.machine.page_address import INSTALL_PAGE, page_installed, run_address
from userrl.reports.card import with_card
from userrl.reports.run_report import has_report, read_report
from userrl.reports.run_summary import at_a_glance
from userrl.run.ending import STARTS
from userrl.run.run import Run
from warehouse import open_warehouse

FAILED = """
SELECT traj_id, policy, step FROM trajectories
WHERE run_id = $run AND phase = 'evaluate' AND admitted AND score < 1 AND checkpoint IS NOT NULL
      AND NOT list_contains($starts, policy)
ORDER BY task_id IN (FROM trajectories SELECT task_id WHERE run_id = $run AND phase = 'evaluate' AND score >= 1) DESC,
         score, turns DESC, traj_id LIMIT 1
"""
"""A held-out conversation of a trained model that failed, or no row. First those whose task another policy solved."""


def show_result(run: Run | None, deployment: str, parameters: Mapping[str, Any]) -> None:
    """Print a run's result card and the next commands. Print nothing for a run without a report.

    The first line is the answer to the run's question.
    """
    if run is None or not has_report(run):
        return
    with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
        report = with_card(read_report(run), warehouse)
        failed = warehouse.rows(FAILED, run=run.id, starts=STARTS)
    print(page_text(at_a_glance(report)).rstrip())
    scratch = "The model is trained from scratch; its scores say nothing about pretrained models. "
    count = len(report.replaced)
    replaced = f"{count} values of the recipe were replaced for this machine; the report lists them. " * bool(count)
    print(f"\n{scratch * report.from_scratch}{replaced}Run {run.id}.")
    trace = "".join(
        f"  .venv/bin/userrl show {row['traj_id']} --full   # a failed conversation of {row['policy']}, step {row['step']}\n"
        for row in failed
    )
    install = "" if page_installed() else f"  .venv/bin/{INSTALL_PAGE}   # once, for the page of the next line\n"
    print(
        "\nTry next:\n"
        f"  .venv/bin/userrl report {run.id}   # scores by gym and tier, curves, files\n"
        f"{install}"
        f"  .venv/bin/userrl view       # then {run_address(run.id)}\n"
        f"{trace}"
        f"  {again(deployment, {**parameters, 'seed': run.info.seed + 1})}"
    )
