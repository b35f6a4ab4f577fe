"""Where a training process's records go: the warehouse's turn log, and beside it Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flows.machine.home import home
from flows.run.job import Job
from userrl_core.records import CheckpointRecord, Task, Trajectory, Turn
from userrl_core.sink import Sink
from warehouse.write.turn_log import TurnLog

if TYPE_CHECKING:
    from curricula.recipe import Recipe


def open_sink(job: Job, recipe: Recipe) -> Sink:
    """The job's sinks. ``wandb`` among its options: offline (default), online or off."""
    fields = run_fields(recipe, seed=job.seed, backend=job.backend, about=job.options)
    log = TurnLog.open(job.warehouse, job.run_id, run_fields=fields)
    mode = str(job.options.get("wandb", "offline"))
    return log if mode == "off" else TrackedLog(log, WandbRun(job, mode))


def run_fields(recipe: Recipe, *, seed: int, backend: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """The run's row in the warehouse."""
    last = recipe.plan[-1].horizon if recipe.plan else None
    return {
        "name": about.get("name") or recipe.name,
        "recipe": recipe.name,
        "recipe_json": recipe.resolved(),
        "recipe_hash": recipe.hash,
        "seed": seed,
        "backend": backend,
        "profile": recipe.profile or "",
        "shaping": recipe.credit.shaping,
        "score": recipe.credit.score,
        "gamma": recipe.credit.gamma,
        "k": recipe.credit.k,
        "form": recipe.credit.form,
        "ddof": recipe.credit.ddof,
        "horizon": last or recipe.evaluate.horizon,
        "code_version": str(about.get("code_version", "")),
        "parent": about.get("parent"),
    }


class WandbRun:
    """Numbers of every step for Weights & Biases, started with the first of them; offline it writes files only."""

    def __init__(self, job: Job, mode: str) -> None:
        self._job = job
        self._mode = mode
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
            mode=self._mode,  # type: ignore[arg-type]
            config={"recipe": self._job.recipe, "seed": self._job.seed},
            settings=wandb.Settings(x_disable_stats=True, console="off", quiet=True),
        )


class TrackedLog:
    """A `Sink`: everything to the turn log, the numbers of each step to Weights & Biases as well."""

    def __init__(self, log: TurnLog, tracker: WandbRun) -> None:
        self._log = log
        self._tracker = tracker

    @property
    def incarnation(self) -> int:
        """The log's; worker processes join it."""
        return self._log.incarnation

    def begin(self, trajectory: Trajectory) -> int:
        """To the log."""
        return self._log.begin(trajectory)

    def turn(self, trajectory: Trajectory, turn: Turn) -> None:
        """To the log."""
        self._log.turn(trajectory, turn)

    def end(self, trajectory: Trajectory) -> None:
        """To the log."""
        self._log.end(trajectory)

    def credits(self, traj_id: int, shaped: Sequence[float], advantage: Sequence[float]) -> None:
        """To the log."""
        self._log.credits(traj_id, shaped, advantage)

    def tasks(self, tasks: Iterable[Task]) -> None:
        """To the log."""
        self._log.tasks(tasks)

    def demonstrations(self, traj_ids: Iterable[int], *, stage: str = "sft") -> None:
        """To the log."""
        self._log.demonstrations(traj_ids, stage=stage)

    def metrics(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        """To both."""
        self._log.metrics(values, stage=stage, step=step)
        self._tracker.log(values, stage, step)

    def stage(self, stage: str, status: str, **fields: Any) -> None:
        """To the log."""
        self._log.stage(stage, status, **fields)

    def event(self, kind: str, **fields: Any) -> None:
        """To the log."""
        self._log.event(kind, **fields)

    def checkpoint(self, record: CheckpointRecord) -> None:
        """To the log."""
        self._log.checkpoint(record)

    def flush(self) -> None:
        """The log."""
        self._log.flush()

    def close(self) -> None:
        """Both; the log in any case."""
        try:
            self._tracker.close()
        finally:
            self._log.close()
