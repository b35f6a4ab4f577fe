"""A stage's numbers in TensorBoard's event files, below ``tensorboard`` in the home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from userrl.machine.home import home
from userrl.run.job import StageJob
from userrl_core.records import CheckpointRecord, Trajectory


class TensorboardRun:
    """A stage's event file, written from the first number on.

    A run of ours is a folder there, and each stage a folder of the run. A stage that was killed continues from a checkpoint.
    TensorBoard then hides the steps that are repeated.
    """

    def __init__(self, job: StageJob) -> None:
        self._job = job
        self._writer: Any = None

    def log(self, values: Mapping[str, float], stage: str, step: int) -> None:
        """Log one step."""
        writer = self._started(step)
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def played(self, trajectory: Trajectory) -> None:
        """Do nothing: conversations are in the warehouse."""

    def checkpoint(self, record: CheckpointRecord) -> None:
        """Log a checkpoint's path, and its validation score if it has one."""
        # A stage that continues logs its checkpoint first. The numbers of that step are not repeated, and stay.
        writer = self._started(record.step + 1)
        writer.add_text("checkpoint", record.path, record.step)
        if record.score is not None:
            writer.add_scalar("checkpoint/validation", record.score, record.step)

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _started(self, step: int) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            job = self._job
            self._writer = SummaryWriter(str(home() / "tensorboard" / job.run_id / job.stage), purge_step=step)
            recipe = yaml.safe_dump(job.recipe.resolved(), sort_keys=False)
            self._writer.add_text("recipe", "\n".join(f"    {line}" for line in recipe.splitlines()), step)
        return self._writer
