"""The same two kinds on verl: what a recipe says becomes verl's jobs, worker processes log into the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curricula.recipe import Recipe
from flows.run.job import Job, ProgressWriter
from flows.worker.train import as_result, checkpoint_of, curriculum, keep, stage_fields, tell
from userrl_core.sink import Sink
from userrl_core.training.verl.job import SinkSpec, VerlJob, VerlSftJob

WAREHOUSE = "warehouse"
"""Entry point under which worker processes find the turn log."""


def sft(job: Job, recipe: Recipe, sink: Sink, progress: ProgressWriter) -> dict[str, Any]:
    """The cold start on verl's SFT trainer."""
    from userrl_core.training.verl.sft import run_sft

    verl_job = VerlSftJob(
        model=recipe.model,
        sft=recipe.cold_start,
        cluster=recipe.hardware,
        out_dir=job.folder,
        seed=job.seed,
        keep_checkpoints=keep(job),
        chats=Path(job.inputs["distill"]["chats"]),
        init=checkpoint_of(job.inputs.get("init")),
        stage=job.stage,
    )
    return as_result(run_sft(verl_job, sink, tell(progress)))


def rl(job: Job, recipe: Recipe, sink: Sink, progress: ProgressWriter) -> dict[str, Any]:
    """One stage of reinforcement learning."""
    from userrl_core.training.verl.rl import run_rl

    verl_job = VerlJob(
        **stage_fields(job, recipe),
        cluster=recipe.hardware,
        sink=SinkSpec(name=WAREHOUSE, options={"root": str(job.warehouse), "run_id": job.run_id}),
    )
    return as_result(run_rl(verl_job, curriculum(job, recipe), sink, tell(progress)))
