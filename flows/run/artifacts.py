"""What a run looks like while it is under way: stages, rewards, cost so far. And a word to someone when it fails."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.machine.home import warehouse_dir
from flows.run.budget import money_spent, seconds_spent
from flows.run.plan import RunPlan
from flows.run.progress import artifact_key
from flows.run.report import learning_curve, number
from flows.run.results import stage_results
from flows.run.run import Run, of_flow_run
from userrl_core.json_files import GrowingLines

BARS = " ▁▂▃▄▅▆▇█"


def show_page(plan: RunPlan, run: Run) -> None:
    """Update the run's page on the server; a server that is away is skipped."""
    try:
        create_markdown_artifact(page(plan, run), key=artifact_key(f"{run.id}-run"), description=f"{run.id} so far")
    except Exception as error:  # noqa: BLE001  the page is for watching only
        get_run_logger().warning("the run's page is not shown (%s)", type(error).__name__)


def page(plan: RunPlan, run: Run) -> str:
    """Stage table, curve and cost in Markdown."""
    done, working = stage_results(run.folder), run.status.stage
    lines = [f"# {run.id}", "", "| stage | state | step | reward | seconds |", "| --- | --- | ---: | ---: | ---: |"]
    for stage in plan.stages:
        last: dict[str, Any] = {}
        for line in GrowingLines(run.stage(stage) / "progress.jsonl"):
            last = line
        state = "done" if stage in done else "running" if stage == working else "waiting"
        seconds = number(done[stage].seconds, 1) if stage in done else "–"
        step = f"{last['step']}/{last['total']}" if last else "–"
        lines.append(f"| {stage} | {state} | {step} | {number(last.get('reward'))} | {seconds} |")
    for phase in ("train", "validate"):
        scores = [point.score for point in learning_curve(run.id) if point.phase == phase]
        if scores:
            lines += ["", f"{phase}: `{spark(scores)}` {number(scores[0])} → {number(scores[-1])}"]
    hours, money = seconds_spent(run.folder) / 3600, money_spent(run.id, warehouse_dir())
    return "\n".join([*lines, "", f"Cost so far: {hours:.2f} hours of stages, ${money:.2f} of model calls."])


def spark(values: list[float]) -> str:
    """A curve in one line of text, at most 60 marks, scaled to the values' own range."""
    step = max(1, -(-len(values) // 60))
    shown = values[::step]
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 2) / (high - low) if high > low else 0.0
    return "".join(BARS[1 + round((value - low) * scale)] for value in shown)


def notify(flow: Any, flow_run: Any, state: Any) -> None:
    """A flow's hook: run the command in ``$USERRL_NOTIFY`` with run, state and message appended, and never fail."""
    command = os.environ.get("USERRL_NOTIFY")
    if not command:
        return
    run = of_flow_run(str(flow_run.id))
    words = [run.id if run else str(flow_run.name), str(state.name), str(state.message or "")]
    try:
        subprocess.run([*shlex.split(command), *words], timeout=30, check=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"the command in USERRL_NOTIFY did not work: {error}")
