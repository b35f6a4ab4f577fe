"""One stage of a run as a Prefect task around a child process.

Whether a stage is done is decided by its result file and the files that it names, not by Prefect: a persisted result makes
the task show as Cached, and is thrown away when a checkpoint is missing or its hash differs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import INPUTS
from prefect.concurrency.sync import concurrency

from flows.machine.home import home, quiet, temporary_server
from flows.machine.slots import Slot, named, slots, take
from flows.run.alarms import Watch
from flows.run.budget import Purse
from flows.run.job import Job, ProgressReader, holds
from flows.run.progress import ProgressArtifact
from flows.run.run import Run
from userrl_core import processes
from userrl_core.errors import CheckpointError, TrainingError

LEASE_SECONDS = 60.0
LEASE_PATIENCE = 5.0
"""How long a server's lease is waited for once the lock file is ours: a killed holder's lease outlives it by a minute."""

STOP_SECONDS, REAP_SECONDS = 20.0, 5.0
"""How long a trainer has to end by itself: one that is interrupted, and one that an earlier flow left behind."""

RETRIES = int(os.environ.get("USERRL_STAGE_RETRIES", "1"))
"""How often a stage is started again by itself after its trainer died (not after it refused its input)."""


def run_stage(run: Run, job: Job) -> dict[str, Any]:
    """The stage's result, from an earlier time if it still holds; ``reused`` says which."""
    log = get_run_logger()
    run.set_status("running", stage=job.stage)
    state = stage.with_options(task_run_name=job.stage)(job.key, job, return_state=True)
    value: dict[str, Any] = state.result()
    if state.name == "Cached":
        if holds(value):
            log.info("%s: reused, finished earlier with the same inputs", job.stage)
            return {**value, "reused": True}
        log.warning("%s: finished earlier, but its files are gone or changed; done again", job.stage)
        value = stage.with_options(task_run_name=job.stage, refresh_cache=True)(job.key, job)
    if value.get("reused"):
        log.info("%s: reused, finished earlier with the same inputs", job.stage)
    return value


def _died(task: Any, task_run: Any, state: Any) -> bool:
    """Whether starting again may help: the process died, as against refusing its input or the run being cancelled."""
    try:
        state.result()
    except processes.ProcessDied:
        return True
    except BaseException:  # noqa: BLE001  any other reason comes again
        return False
    return False


@task(
    name="stage",
    persist_result=True,
    cache_policy=(INPUTS - "job").configure(key_storage=home() / "results" / "keys"),
    result_storage=home() / "results",
    retries=RETRIES,
    retry_delay_seconds=2,
    retry_condition_fn=_died,
    log_prints=False,
)
def stage(key: str, job: Job) -> dict[str, Any]:
    """Do a job in a child process, or take its result file. key: the job's; it alone decides about reuse."""
    done = job.result()
    if done is not None:
        return {**done, "reused": True}
    say = get_run_logger().info
    return execute(job, progress=ProgressArtifact(job), say=say, lease=lambda slot: _lease(slot, say))


def execute(
    job: Job,
    *,
    progress: Callable[[dict[str, Any]], None] = lambda line: None,
    say: Callable[..., None] = lambda *words: None,
    lease: Callable[[Slot], AbstractContextManager[None]] = lambda slot: nullcontext(),
) -> dict[str, Any]:
    """Run a job's process in a free slot of this machine. Needs no Prefect server; lease: held beside the slot.

    Raises TrainingError with the process's own sentence when it fails, CheckpointError when what it left does not hold.
    """
    killed = processes.reap(
        job.folder, grace=REAP_SECONDS
    )  # before waiting for a slot: a leftover may be what holds it
    if killed:
        say("%s: stopped %d leftover process(es) of an earlier start", job.stage, killed)
    path = job.write()
    lines = ProgressReader(job.progress_file, from_end=True)
    watch, purse = Watch(job, say), Purse(job)

    def tick() -> None:
        if (job.folder.parents[1] / "stop").exists():
            raise TrainingError(f"Run {job.run_id} was stopped by `userrl runs stop`; start it again to continue.")
        purse()
        for line in lines:
            progress(line)
            watch(line)

    count, among = _wanted(job)
    with (
        take(
            home() / "slots", count, among, waiting=lambda who: say("%s: waits for a slot, held: %s", job.stage, who)
        ) as taken,
        ExitStack() as leases,
    ):
        began = time.monotonic()
        for slot in taken:
            leases.enter_context(lease(slot))
        processes.run(
            [sys.executable, "-u", "-m", "flows.worker.main", str(path)],
            job.folder,
            name="The trainer",
            on_tick=tick,
            env=_environment(taken),
            keep_open=[slot.descriptor for slot in taken],
            grace=STOP_SECONDS,
        )
    value = job.result()
    if value is None:
        raise CheckpointError(
            f"Stage {job.stage} ended, but what it left in {job.folder} is not what it says; delete that folder and run again."
        )
    say("%s: done in %.1f s", job.stage, time.monotonic() - began)
    return value


def _wanted(job: Job) -> tuple[int, tuple[Slot, ...]]:
    """How many slots a stage holds, and among which: a training on verl has as many GPUs as its profile says for its kind.

    GPUs on which the run serves its users are not among them; verl on a Ray cluster elsewhere holds one place here.
    """
    hardware = job.recipe["hardware"]
    serving = {slot.name for slot in named(hardware.get("user_gpus"))}
    among = tuple(slot for slot in slots() if slot.name not in serving)
    spread = job.backend == "verl" and job.kind in ("sft", "rl") and not hardware.get("ray_address")
    if not spread or not any(slot.gpu is not None for slot in among):
        return 1, among
    gpus = (hardware.get("sft_gpus") if job.kind == "sft" else None) or hardware["gpus"]
    return max(int(gpus), 1), among


def _environment(taken: Sequence[Slot]) -> dict[str, str]:
    environment = quiet()
    gpus = [str(slot.gpu) for slot in taken if slot.gpu is not None]
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return environment


@contextmanager
def _lease(slot: Slot, say: Callable[..., None]) -> Iterator[None]:
    """The slot's limit on the server, so that it shows there; the file lock decides, and a server that is away stops nothing."""
    if temporary_server():
        yield
        return
    lease = concurrency(
        slot.name,
        lease_duration=LEASE_SECONDS,
        timeout_seconds=LEASE_PATIENCE,
        strict=False,
        raise_on_lease_renewal_failure=False,
    )
    try:
        lease.__enter__()
    except Exception as error:  # noqa: BLE001  shown, never fatal: see above
        say("the server grants no lease for %s (%s); its lock file is ours, going on", slot.name, type(error).__name__)
        yield
        return
    try:
        yield
    finally:
        with suppress(Exception):
            lease.__exit__(None, None, None)
