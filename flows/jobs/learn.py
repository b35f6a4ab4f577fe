"""The cold start and the reinforcement-learning stages on the local backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curricula.recipe import Recipe
from flows.job import Job, ProgressWriter, file_hash
from flows.jobs.curriculum import RecipeCurriculum
from flows.jobs.device import device, threads
from flows.jobs.tasks import gym_config, users_of, validation_tasks
from userrl_core.sink import Sink
from userrl_core.training.config import AlgorithmConfig
from userrl_core.training.jobs import Best, RlJob, SftJob, StageResult

CHECKPOINT_EVERY = 10


def sft(job: Job, recipe: Recipe, sink: Sink, progress: ProgressWriter) -> dict[str, Any]:
    """Supervised training on the kept demonstrations."""
    from userrl_core.training.sft import train_sft

    result = train_sft(
        SftJob(
            model=recipe.model,
            out_dir=job.folder,
            seed=job.seed,
            device=device(),
            threads=threads(),
            checkpoint_every=int(job.options.get("sft_checkpoint_every", 100)),
            keep_checkpoints=_keep(job),
            sft=recipe.cold_start,
            chats=Path(job.inputs["distill"]["chats"]),
            init=_path(job.inputs.get("init")),
            stage=job.stage,
        ),
        sink,
        _tell(progress),
    )
    return _result(result)


def rl(job: Job, recipe: Recipe, sink: Sink, progress: ProgressWriter) -> dict[str, Any]:
    """One stage: from the checkpoint before it to its last step."""
    from userrl_core.training.loop import train_rl

    planned = next(stage for stage in recipe.plan if stage.name == job.stage)
    before = job.inputs["before"]
    used_file = job.inputs.get("distill", {}).get("used_tasks")
    used = json.loads(Path(used_file).read_text())["tasks"] if used_file else []
    known = AlgorithmConfig.model_fields
    first = recipe.plan[0].name == job.stage
    result = train_rl(
        RlJob(
            model=recipe.model,
            out_dir=job.folder,
            seed=job.seed,
            device=device(),
            threads=threads(),
            checkpoint_every=int(job.options.get("checkpoint_every", CHECKPOINT_EVERY)),
            keep_checkpoints=_keep(job),
            algorithm=AlgorithmConfig(**{k: v for k, v in recipe.algorithm.model_dump().items() if k in known}),
            credit=recipe.credit,
            init=Path(before["checkpoint"]),
            reference=_path(job.inputs.get("reference")),
            first_step=planned.first,
            last_step=planned.last,
            total_steps=recipe.total_steps,
            validation=validation_tasks(recipe),
            validate_every=recipe.evaluate.every,
            validation_horizon=recipe.evaluate.horizon,
            gym_config=gym_config(recipe),
            users=users_of(recipe, role="train"),
            on_format_error=recipe.on_format_error,
            best=None if first or not before.get("best") else Best.model_validate(before["best"]),
        ),
        RecipeCurriculum(recipe, used, job.seed),
        sink,
        _tell(progress),
    )
    return _result(result)


def _keep(job: Job) -> int:
    return int(job.options.get("keep_checkpoints") or 2)


def _path(result: Mapping[str, Any] | None) -> Path | None:
    return Path(result["checkpoint"]) if result and result.get("checkpoint") else None


def _tell(progress: ProgressWriter) -> Any:
    def tell(step: int, total: int, metrics: Mapping[str, float]) -> None:
        progress(step, total, reward=metrics.get(REWARD), **{name: metrics[name] for name in SHOWN if name in metrics})

    return tell


REWARD = "rollout/return_sum/mean"
SHOWN = ("sft/loss/mean", "validate/score/mean", "policy/entropy/mean")


def _result(result: StageResult) -> dict[str, Any]:
    value = result.model_dump(mode="json")
    folders = {result.checkpoint, *([result.best.path] if result.best else [])}
    files = {str(path): file_hash(path) for folder in sorted(folders) for path in sorted(folder.glob("*.safetensors"))}
    return {**value, "files": files}
