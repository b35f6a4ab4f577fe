"""The destinations of a worker's records: the warehouse's turn log, and optionally experiment trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from userrl.run.job import StageJob
from userrl.run.run import run_fields
from userrl_core.records import CheckpointRecord, Trajectory
from userrl_core.sink import Sink
from warehouse.write.turn_log import TurnLog


class Tracker(Protocol):
    """A stage's run in an experiment tracker."""

    def log(self, values: Mapping[str, float], stage: str, step: int) -> None:
        """Log one step."""

    def played(self, trajectory: Trajectory) -> None:
        """Take note of a conversation."""

    def checkpoint(self, record: CheckpointRecord) -> None:
        """Log a checkpoint by reference."""

    def close(self) -> None:
        """Write what is left and finish."""


def open_sink(job: StageJob) -> Sink:
    """Open the job's sinks according to its options."""
    # Used only by a job started on its own. A flow has already registered its run.
    fields = run_fields(job.recipe, seed=job.seed, backend=job.backend)
    trackers = open_trackers(job)
    if not trackers:
        return TurnLog.open(job.warehouse, job.run_id, run_fields=fields)
    log = TrackedLog.open(job.warehouse, job.run_id, run_fields=fields)
    assert isinstance(log, TrackedLog)
    log.trackers = trackers
    return log


def open_trackers(job: StageJob) -> tuple[Tracker, ...]:
    """Return the trackers of the job's options. A tracker's package is imported with its first record."""
    trackers: list[Tracker] = []
    if job.options.wandb != "off":
        from userrl.worker.wandb_run import WandbRun

        trackers.append(WandbRun(job))
    if "tensorboard" in job.options.track:
        from userrl.worker.tensorboard_run import TensorboardRun

        trackers.append(TensorboardRun(job))
    if "mlflow" in job.options.track:
        from userrl.worker.mlflow_run import MlflowRun

        trackers.append(MlflowRun(job))
    return tuple(trackers)


class TrackedLog(TurnLog):
    """A turn log that also sends numbers, conversations and checkpoints to trackers."""

    trackers: tuple[Tracker, ...]

    def metrics(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        """Log to all."""
        super().metrics(values, stage=stage, step=step)
        for tracker in self.trackers:
            tracker.log(values, stage, step)

    def end(self, trajectory: Trajectory) -> None:
        """Log to all."""
        super().end(trajectory)
        for tracker in self.trackers:
            tracker.played(trajectory)

    def checkpoint(self, record: CheckpointRecord) -> None:
        """Log to all."""
        super().checkpoint(record)
        for tracker in self.trackers:
            tracker.checkpoint(record)

    def close(self) -> None:
        """Close all; the log in any case."""
        try:
            for tracker in self.trackers:
                tracker.close()
        finally:
            super().close()
