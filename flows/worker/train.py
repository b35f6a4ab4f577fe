"""The cold start and the reinforcement-learning stages on the local backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curricula.recipe import Recipe
from flows.run.job import Job, ProgressWriter, file_hash
from flows.worker.curriculum import RecipeCurriculum
from flows.worker.device import device, threads
from flows.worker.tasks import gym_config, users_of, validation_tasks
from userrl_core.sink import Sink
from userrl_core.training.jobs import Best, RlJob, SftJob, StageResult

CHECKPOINT_EVERY = 10


def sft(job: Job, recipe: Recipe, sink: Sink, progress: ProgressWriter) -> dict[str, Any]:
    """Supervised training on the kept demonstrations."""
    from userrl_core.training.local.sft import train_sft

    result = train_sft(
        SftJob(
            model=recipe.model,
            out_dir=job.folder,
            seed=job.seed,
            device=device(),
            threads=threads(),
            checkpoint_every=int(job.options.get("sft_checkpoint_every", 100)),
            keep_checkpoints=keep(job),
            sft=recipe.cold_start,
            chats=Path(job.inputs["distill"]["chats"]),
            init=checkpoint_of(job.inputs.get("init")),
            stage=job.stage,
        ),
        sink,
        tell(progress),
    )
    return as_result(result)


def rl(job: Job, recipe: Recipe, sink: Sink, progress: ProgressWriter) -> dict[str, Any]:
    """One stage: from the checkpoint before it to its last step."""
    from userrl_core.served.health import check_users
    from userrl_core.training.local.loop import train_rl

    stage_job = RlJob(
        **stage_fields(job, recipe),
        device=device(),
        threads=threads(),
    )
    check_users(stage_job.users)
    return as_result(train_rl(stage_job, curriculum(job, recipe), sink, tell(progress)))


def stage_fields(job: Job, recipe: Recipe) -> dict[str, Any]:
    """What an RL job of either backend takes from the run: where it begins and ends, and whom it is measured on."""
    planned = next(stage for stage in recipe.plan if stage.name == job.stage)
    before = job.inputs["before"]
    first = recipe.plan[0].name == job.stage
    return {
        "model": recipe.model,
        "algorithm": recipe.algorithm,
        "credit": recipe.credit,
        "on_format_error": recipe.on_format_error,
        "validate_every": recipe.evaluate.every,
        "validation_horizon": recipe.evaluate.horizon,
        "out_dir": job.folder,
        "seed": job.seed,
        "checkpoint_every": int(job.options.get("checkpoint_every", CHECKPOINT_EVERY)),
        "keep_checkpoints": keep(job),
        "init": Path(before["checkpoint"]),
        "reference": checkpoint_of(job.inputs.get("reference")),
        "first_step": planned.first,
        "last_step": planned.last,
        "total_steps": recipe.total_steps,
        "validation": validation_tasks(recipe),
        "validation_temperature": recipe.evaluate.temperature,
        "stage": job.stage,
        "gym_config": gym_config(recipe),
        "users": users_of(recipe, recipe.training_gyms, role="train"),
        "best": None if first or not before.get("best") else Best.model_validate(before["best"]),
    }


def curriculum(job: Job, recipe: Recipe) -> RecipeCurriculum:
    """The recipe's, without the tasks that demonstrations used up."""
    used_file = job.inputs.get("distill", {}).get("used_tasks")
    used = json.loads(Path(used_file).read_text())["tasks"] if used_file else []
    return RecipeCurriculum(recipe, used, job.seed)


def keep(job: Job) -> int:
    """How many checkpoints of a stage stay beside the best one."""
    return int(job.options.get("keep_checkpoints") or 2)


def checkpoint_of(result: Mapping[str, Any] | None) -> Path | None:
    """The checkpoint that a stage's result names."""
    return Path(result["checkpoint"]) if result and result.get("checkpoint") else None


def tell(progress: ProgressWriter) -> Any:
    """A trainer's progress callback that writes progress lines."""

    def told(step: int, total: int, metrics: Mapping[str, float]) -> None:
        progress(step, total, reward=metrics.get(REWARD), **{name: metrics[name] for name in SHOWN if name in metrics})

    return told


REWARD = "rollout/return_sum/mean"
SHOWN = ("sft/loss/mean", "validate/score/mean", "policy/entropy/mean")


def as_result(result: StageResult) -> dict[str, Any]:
    """The stage's result with the hash of every file of weights that it names."""
    value = result.model_dump(mode="json")
    folders = {result.checkpoint, *([result.best.path] if result.best else [])}
    files = {str(path): file_hash(path) for folder in sorted(folders) for path in sorted(folder.glob("*.safetensors"))}
    return {**value, "files": files}
