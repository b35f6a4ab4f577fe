"""The cold start and the RL stages on verl. Its worker processes log into the same run."""

from __future__ import annotations

from userrl.run.job import ProgressWriter, StageJob
from userrl.run.results import TrainResult
from userrl.worker.train import curriculum, report_to, rl_job, sft_job, with_hashes
from userrl_core.sink import Sink
from userrl_core.training.verl.job import SinkSpec, VerlJob, VerlSftJob

WAREHOUSE = "warehouse"
"""Entry point of the turn log in worker processes."""


def sft(job: StageJob, sink: Sink, progress: ProgressWriter) -> TrainResult:
    """Run the cold start on verl's SFT trainer."""
    from userrl_core.training.verl.sft import run_sft

    settings = sft_job(VerlSftJob, job, cluster=job.recipe.hardware)
    return with_hashes(run_sft(settings, sink, report_to(progress)))


def rl(job: StageJob, sink: Sink, progress: ProgressWriter) -> TrainResult:
    """Run one RL stage."""
    from userrl_core.training.verl.rl import run_rl

    log = SinkSpec(name=WAREHOUSE, options={"root": str(job.warehouse), "run_id": job.run_id})
    settings = rl_job(VerlJob, job, cluster=job.recipe.hardware, sink=log)
    return with_hashes(run_rl(settings, curriculum(job), sink, report_to(progress)))
