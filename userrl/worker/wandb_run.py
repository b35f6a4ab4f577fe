"""A stage's numbers, sampled conversations and checkpoints in Weights & Biases."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from userrl.machine.home import home
from userrl.run.job import StageJob
from userrl_core.records import CheckpointRecord, Trajectory
from warehouse.files.layout import claim

SAMPLED = 64
"""Number of conversations that a stage shows, sampled uniformly from all it plays."""


class WandbRun:
    """A stage's run in Weights & Biases, started with the first number or conversation. Offline it only writes files.

    A run of ours is a group there, and each start of a stage a run of the group: offline, no earlier run can be resumed. So the
    steps that a restarted stage repeats are never twice in one run, and the name of a later start ends with its number. A run
    has numbers by step, a table of sampled conversations with their rewards, and checkpoints as references to their paths. The
    table is written with each checkpoint and at the end. The config has the recipe and the path of the report.
    """

    def __init__(self, job: StageJob) -> None:
        self._job = job
        self._run: Any = None
        self._draw = random.Random(job.seed)
        self._played = 0
        self._samples: list[Trajectory] = []
        self._shown = 0

    def log(self, values: Mapping[str, float], stage: str, step: int) -> None:
        """Log one step."""
        self._started().log({**values, "stage": stage, "step": step})

    def played(self, trajectory: Trajectory) -> None:
        """Offer a conversation for the table. All have the same chance (reservoir sampling)."""
        self._played += 1
        if len(self._samples) < SAMPLED:
            self._samples.append(trajectory)
        elif (index := self._draw.randrange(self._played)) < SAMPLED:
            self._samples[index] = trajectory

    def checkpoint(self, record: CheckpointRecord) -> None:
        """Log a checkpoint by reference. The weights stay in their folder."""
        import wandb

        about = {"step": record.step, "sha256": record.sha256, "parent": record.parent, "validation": record.score}
        artifact = wandb.Artifact(record.id, type="checkpoint", metadata=about)
        artifact.add_reference(Path(record.path).absolute().as_uri(), checksum=False)
        self._started().log_artifact(artifact)
        self._log_samples()

    def close(self) -> None:
        """Show the sampled conversations and finish, if there is anything to show."""
        self._log_samples()
        if self._run is not None:
            self._run.finish()

    def _log_samples(self) -> None:
        """Log the table, if a conversation was played since the last time."""
        if self._played > self._shown:
            import wandb

            self._shown = self._played
            table = wandb.Table(columns=[*TABLE])
            for trajectory in self._samples:  # rows given as a list would import pandas, for half a second
                table.add_data(*_row(trajectory))
            self._started().log({f"conversations/{self._job.stage}": table})

    def _started(self) -> Any:
        if self._run is None:
            self._run = self._start()
        return self._run

    def _start(self) -> Any:
        os.environ.setdefault("WANDB_SILENT", "true")
        import wandb

        folder = home() / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        job, recipe = self._job, self._job.recipe
        report = (job.folder.parent.parent / "report.md").absolute().as_uri()
        start = claim(folder / "starts" / job.run_id / job.stage)
        run = wandb.init(
            project="userrl",
            group=job.run_id,
            name=f"{job.run_id}/{job.stage}" + (f" start {start}" if start > 1 else ""),
            job_type=job.kind,
            tags=[f"recipe:{recipe.name}"[:64], f"profile:{recipe.profile}"[:64], f"seed:{job.seed}"],
            notes=f"Report: {report}",
            dir=str(folder),
            mode=job.options.wandb,  # type: ignore[arg-type]
            config={
                "recipe": recipe.resolved(),
                "seed": job.seed,
                "profile": recipe.profile,
                "report": report,
                "start": start,
            },
            settings=wandb.Settings(x_disable_stats=True, console="off", quiet=True),
        )
        run.define_metric("*", step_metric="step")
        return run


TABLE = (
    "step",
    "phase",
    "gym",
    "task",
    "policy",
    "score",
    "rewards",
    "ended",
    "admitted",
    "reject_reason",
    "conversation",
)


def _row(trajectory: Trajectory) -> list[Any]:
    where = trajectory.context
    opening = [f"{message['role']}: {message['content']}" for message in trajectory.messages]
    turns = [f"[{turn.number}] agent: {turn.message}\n[{turn.number}] {turn.observation}" for turn in trajectory.turns]
    return [
        where.step,
        where.phase,
        trajectory.task.gym,
        trajectory.task.id,
        where.policy,
        trajectory.score,
        ", ".join("null" if reward is None else f"{reward:g}" for reward in trajectory.rewards),
        trajectory.stop_reason,
        trajectory.admitted,
        trajectory.reject_reason,
        "\n".join((*opening, *turns)),
    ]
