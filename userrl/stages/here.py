"""A run in this process and its children, without a Prefect server."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from userrl.machine.home import runs_dir
from userrl.reports.run_report import RunReport
from userrl.run.job import StageJob
from userrl.run.plan import RunPlan
from userrl.run.results import Result
from userrl.run.run import Run, load
from userrl.stages.execution import RETRIES, RETRY_SECONDS, REUSED, Share, execute
from userrl.stages.sequence import run_all
from userrl.stages.workers import Workers
from userrl_core.processes import ProcessDied


def train_here(
    plan: RunPlan,
    *,
    say: Callable[..., None] = lambda *args: None,
    progress: Callable[[str, dict[str, Any]], None] = lambda stage, line: None,
    workers: Workers | None = None,
) -> RunReport:
    """Train a plan and return its report. Finished stages are reused, and a killed run continues.

    progress: called with the stage's name and every progress line. say: called with log lines as for `logging`. workers: those of
    several runs, which then import torch once. Raises TrainingError or CheckpointError with one sentence.
    """
    with plan.begin(say=say) as run, run.at_work():
        perform = partial(_do, run, say=say, progress=progress)
        return run_all(plan, run, perform, say=say, workers=workers)


def finished(plan: RunPlan) -> Run | None:
    """Return the run if all requested stages are done and their files are valid, else None. Nothing is started or changed."""
    folder = runs_dir() / plan.goes_on_as
    if plan.request.fresh or plan.request.dry_run or not (folder / "report.md").is_file():
        return None
    run = load(folder)
    if run.status.state != "completed":
        return None
    files = [run.stage(stage) / "job.json" for stage in plan.selected]
    return run if all(file.is_file() and StageJob.read(file).finished() is not None for file in files) else None


def _do(
    run: Run,
    job: StageJob,
    share: Share | None,
    workers: Workers,
    *,
    say: Callable[..., None],
    progress: Callable[[str, dict[str, Any]], None],
) -> Result:
    """Return the stage's result, reused if an earlier one is still valid."""
    run.set_status("running", stage=job.stage)
    result = job.finished()
    if result is not None:
        say(REUSED, job.stage)
        job.reused_file.touch()
        return result
    for attempt in range(RETRIES + 1):
        try:
            return execute(job, share, workers, progress=lambda line: progress(job.stage, line), say=say)
        except ProcessDied as error:
            if attempt == RETRIES:
                raise
            say("%s: %s Restarting the stage.", job.stage, error)
            time.sleep(RETRY_SECONDS)
    raise AssertionError("unreachable")
