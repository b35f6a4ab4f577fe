"""The cold start and the RL stages on the local backend, and the job settings that both backends share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from curricula.recipe import PlannedStage
from userrl.machine.hashes import file_hash
from userrl.machine.pretrained import in_home
from userrl.machine.slots import threads
from userrl.run.job import ProgressWriter, StageJob
from userrl.run.results import TrainResult
from userrl.run.tasks import gym_config, judge_of, users_of, validation_tasks
from userrl.worker.curriculum import RecipeCurriculum, timed_gates
from userrl.worker.device import device
from userrl.worker.shared_cold_start import shared
from userrl_core.errors import TrainingError
from userrl_core.judging.judge import judge_server
from userrl_core.served.health import check_server, check_users
from userrl_core.sink import Sink
from userrl_core.training.jobs import RlJob, SftJob, StageResult
from userrl_core.training.protocols import Progress

SFT_CHECKPOINT_EVERY, RL_CHECKPOINT_EVERY = 100, 10
S = TypeVar("S", bound=SftJob)
R = TypeVar("R", bound=RlJob)


def sft(job: StageJob, sink: Sink, progress: ProgressWriter) -> TrainResult:
    """Run the cold start: supervised training on the kept demonstrations."""
    from userrl_core.training.local.sft import train_sft

    requested = job.recipe.hardware.threads
    settings = sft_job(SftJob, job, device=device(), threads=threads(requested), checkpoint_every=SFT_CHECKPOINT_EVERY)

    def train() -> TrainResult:
        return with_hashes(train_sft(settings, sink, report_to(progress)))

    return shared(job, settings, sink, train) if job.options.share_cold_start else train()


def rl(job: StageJob, sink: Sink, progress: ProgressWriter) -> TrainResult:
    """Run one RL stage, from the checkpoint before it to its last step."""
    from userrl_core.training.local.loop import train_rl

    settings = rl_job(RlJob, job, device=device(), threads=threads(job.recipe.hardware.threads))
    check_users(settings.users)
    if server := judge_server(settings.judge):
        check_server(server, "judge of turns")
    if server := judge_server(settings.intervention):
        check_server(server, "verifier of steps")
    return with_hashes(train_rl(settings, curriculum(job), sink, report_to(progress)))


def sft_job(kind: type[S], job: StageJob, **backend: Any) -> S:
    """Return the cold start as a trainer's job. backend: fields that only one of the trainers has."""
    recipe, distilled, init = job.recipe, job.inputs.distill, job.inputs.init
    return kind(
        model=in_home(recipe.model),
        sft=recipe.cold_start,
        out_dir=job.folder,
        seed=job.seed,
        keep_checkpoints=job.options.keep_checkpoints,
        chats=distilled.chats if distilled else None,
        init=init.checkpoint if init else None,
        stage=job.stage,
        **backend,
    )


def rl_job(kind: type[R], job: StageJob, **backend: Any) -> R:
    """Return an RL stage as a trainer's job. backend: fields that only one of the trainers has."""
    recipe, before, reference = job.recipe, job.inputs.before, job.inputs.reference
    if before is None:
        raise TrainingError(
            "stage.not_finished", f"Stage {job.stage} has no checkpoint to start from. Run the stages before it."
        )
    planned, ahead = _planned(job), _ahead(job)
    budget = planned.stage.cpu_seconds or planned.stage.gpu_seconds
    return kind(
        model=in_home(recipe.model),
        algorithm=recipe.algorithm,
        credit=recipe.credit,
        out_dir=job.folder,
        seed=job.seed,
        checkpoint_every=RL_CHECKPOINT_EVERY,
        keep_checkpoints=job.options.keep_checkpoints,
        init=before.checkpoint,
        reference=reference.checkpoint if reference else None,
        best=before.best if planned.number > 1 else None,
        stage=job.stage,
        first_step=planned.first - ahead,
        last_step=planned.last - ahead,
        total_steps=max(stage.last for stage in recipe.along(planned.branch)) - ahead,
        seconds=None if budget is None else (("cpu" if planned.stage.cpu_seconds else "gpu"), budget),
        timed=planned.stage.timed or timed_gates(recipe),
        validation=validation_tasks(recipe),
        validate_every=recipe.evaluate.every,
        validation_horizon=recipe.evaluate.horizon,
        validation_temperature=recipe.evaluate.temperature,
        validation_top_p=recipe.evaluation_top_p,
        gym_config=gym_config(recipe),
        judge=judge_of(recipe),
        intervention=recipe.intervention,
        users=users_of(recipe, recipe.training_gyms, role="train"),
        on_format_error=recipe.on_format_error,
        **backend,
    )


def curriculum(job: StageJob) -> RecipeCurriculum:
    """Return the recipe's curriculum, without the tasks that demonstrations used."""
    distilled = job.inputs.distill
    used = json.loads(distilled.used_tasks.read_text())["tasks"] if distilled else []
    return RecipeCurriculum(job.recipe, used, job.seed, _planned(job).branch, _ahead(job))


def _ahead(job: StageJob) -> int:
    """Return how many fewer steps than planned came before this stage. Earlier stages may have a limit in seconds."""
    planned, before = _planned(job), job.inputs.before
    earlier = [stage for stage in job.recipe.along(planned.branch) if stage.number < planned.number]
    if before is None or not any(stage.stage.timed for stage in earlier):
        return 0
    return planned.first - 1 - before.step


def _planned(job: StageJob) -> PlannedStage:
    return next(stage for stage in job.recipe.planned_stages if stage.name == job.stage)


def report_to(progress: ProgressWriter) -> Progress:
    """Return a trainer's progress callback that writes progress lines."""

    def write(step: int, total: int, metrics: Mapping[str, float]) -> None:
        tiers = {name.split("/")[1]: value for name, value in metrics.items() if TIER.fullmatch(name)}
        values = {name: metrics[name] for name in SHOWN if name in metrics} | ({"tiers": tiers} if tiers else {})
        progress(step, total, score=metrics.get(SCORE), reward=metrics.get(REWARD), **values)

    return write


SCORE = "rollout/score/mean"
"""The mean of the gyms' metrics, which tables and curves show."""
REWARD = "rollout/return_sum/mean"
TIER = re.compile(r"validate/\w+\.[^/]+/score/mean")
SHOWN = ("sft/loss/mean", "validate/score/mean", "policy/entropy/mean")


def with_hashes(result: StageResult) -> TrainResult:
    """Return the trainer's result with the hash of every weight file that it names."""
    folders = {result.checkpoint, *([result.best.path] if result.best else [])}
    weights = [path for folder in sorted(folders) for path in sorted(Path(folder).glob("*.safetensors"))]
    return TrainResult(**dict(result), files={path: file_hash(path) for path in weights})
