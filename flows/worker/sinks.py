"""Where a worker process's records go: the warehouse's turn log, and beside it Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flows.machine.home import home
from flows.run.job import StageJob
from flows.run.run import run_fields
from userrl_core.sink import Sink
from warehouse.write.turn_log import TurnLog


def open_sink(job: StageJob) -> Sink:
    """The job's sinks, as its options say."""
    # They count only for a job that was started by itself: a flow has registered its run already.
    fields = run_fields(job.recipe, seed=job.seed, backend=job.backend)
    if job.options.wandb == "off":
        return TurnLog.open(job.warehouse, job.run_id, run_fields=fields)
    log = TrackedLog.open(job.warehouse, job.run_id, run_fields=fields)
    assert isinstance(log, TrackedLog)
    log.tracker = WandbRun(job)
    return log


class WandbRun:
    """Numbers of every step for Weights & Biases, started with the first of them; offline it writes files only."""

    def __init__(self, job: StageJob) -> None:
        self._job = job
        self._run: Any = None

    def log(self, values: Mapping[str, float], stage: str, step: int) -> None:
        """One step."""
        if self._run is None:
            self._run = self._start()
        self._run.log({**values, "stage": stage, "step": step})

    def close(self) -> None:
        """Finish, if it was ever started."""
        if self._run is not None:
            self._run.finish()

    def _start(self) -> Any:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        folder = home() / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(
            project="userrl",
            group=self._job.run_id,
            name=f"{self._job.run_id}/{self._job.stage}",
            job_type=self._job.kind,
            dir=str(folder),
            mode=self._job.options.wandb,  # type: ignore[arg-type]
            config={"recipe": self._job.recipe.resolved(), "seed": self._job.seed},
            settings=wandb.Settings(x_disable_stats=True, console="off", quiet=True),
        )


class TrackedLog(TurnLog):
    """A turn log; the numbers of each step go to Weights & Biases as well."""

    tracker: WandbRun

    def metrics(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        """To both."""
        super().metrics(values, stage=stage, step=step)
        self.tracker.log(values, stage, step)

    def close(self) -> None:
        """Both; the log in any case."""
        try:
            self.tracker.close()
        finally:
            super().close()
