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
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import INPUTS
from prefect.concurrency.sync import concurrency

from flows.machine.engine import engine_gpus
from flows.machine.home import home, quiet, temporary_server
from flows.machine.slots import Slot, named, slots, take, threads
from flows.machine.workers import MODULE, Workers
from flows.run.alarms import AlarmWatch
from flows.run.artifacts import ProgressArtifact
from flows.run.budget import BudgetGuard
from flows.run.job import StageJob
from flows.run.results import RESULTS, Result
from flows.run.run import Run, holder_of, set_waiting
from userrl_core import processes
from userrl_core.errors import CheckpointError, TrainingError
from userrl_core.json_files import GrowingLines

LEASE_SECONDS = 60.0
LEASE_PATIENCE = 5.0
"""How long a server's lease is waited for once the lock file is ours: a killed holder's lease outlives it by a minute."""

STOP_SECONDS, REAP_SECONDS = 20.0, 5.0
"""How long a trainer has to end by itself: one that is interrupted, and one that an earlier flow left behind."""

RETRIES = int(os.environ.get("USERRL_STAGE_RETRIES", "1"))
"""How often a stage is started again by itself after its trainer died (not after it refused its input)."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a slot, for stages that run side by side in it. halted: whether they are to stop."""

    slots: tuple[Slot, ...]
    threads: int
    halted: Callable[[], bool]


@contextmanager
def shared_slot(stages: int, folder: Path) -> Iterator[Share | None]:
    """A CPU slot for several stages at once, its threads divided among them; none on a machine with GPUs, where each has its
    own. Whoever leaves this with an exception stops them all. folder: the run's."""
    log, among = get_run_logger(), slots()
    if any(slot.gpu is not None for slot in among):
        yield None
        return

    def waiting(holders: str) -> None:
        log.info("waits for a slot, held: %s", holders)
        set_waiting(folder, holders)

    halt = Event()
    with take(home() / "slots", 1, among, waiting=waiting, holder_of=holder_of) as taken:
        set_waiting(folder, None)
        try:
            yield Share(taken, max(1, threads() // stages), halt.is_set)
        except BaseException:
            halt.set()
            raise


def run_stage(run: Run, job: StageJob, share: Share | None = None, workers: Workers | None = None) -> Result:
    """The stage's result, from an earlier time if it still holds. share: its part of a slot that is held already."""
    log = get_run_logger()
    run.set_status("running", stage=job.stage)
    state = stage.with_options(task_run_name=job.stage)(job.key, job, share, workers, return_state=True)
    result = RESULTS[job.kind].model_validate(state.result())
    if state.name == "Cached":
        if result.holds():
            log.info(REUSED, job.stage)
            job.reused_file.touch()
            return result
        log.warning("%s: finished earlier, but its files are gone or changed; done again", job.stage)
        again = stage.with_options(task_run_name=job.stage, refresh_cache=True)
        result = RESULTS[job.kind].model_validate(again(job.key, job, share, workers))
    return result


REUSED = "%s: reused, finished earlier with the same inputs"


def _may_help(task: Any, task_run: Any, state: Any) -> bool:
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
    cache_policy=(INPUTS - "job" - "share" - "workers").configure(key_storage=home() / "results" / "keys"),
    result_storage=home() / "results",
    retries=RETRIES,
    retry_delay_seconds=2,
    retry_condition_fn=_may_help,
    log_prints=False,
)
def stage(key: str, job: StageJob, share: Share | None = None, workers: Workers | None = None) -> dict[str, Any]:
    """Do a job in a child process, or take its result file. key: the job's; it alone decides about reuse.

    Returns the result as JSON, which Prefect keeps: it is still read when the result's class has moved.
    """
    say = get_run_logger().info
    result = job.result()
    if result is not None:
        say(REUSED, job.stage)
        job.reused_file.touch()
    else:
        shown = ProgressArtifact(job)
        result = execute(job, share, workers, progress=shown, say=say, lease=lambda slot: _lease(slot, say))
    return result.model_dump(mode="json")


def execute(
    job: StageJob,
    share: Share | None = None,
    workers: Workers | None = None,
    *,
    progress: Callable[[dict[str, Any]], None] = lambda line: None,
    say: Callable[..., None] = lambda *words: None,
    lease: Callable[[Slot], AbstractContextManager[None]] = lambda slot: nullcontext(),
) -> Result:
    """Run a job's process in a free slot of this machine. Needs no Prefect server; lease: held beside the slot.

    Raises TrainingError with the process's own sentence when it fails, CheckpointError when what it left does not hold.
    """
    killed = processes.reap(
        job.folder, grace=REAP_SECONDS
    )  # before waiting for a slot: a leftover may be what holds it
    if killed:
        say("%s: stopped %d leftover process(es) of an earlier start", job.stage, killed)
    path = job.write()
    lines = GrowingLines(job.progress_file, from_end=True)
    alarms, budget = AlarmWatch(job, say), BudgetGuard(job)

    def tick() -> None:
        if share is not None and share.halted():
            raise TrainingError(f"Stage {job.stage} was stopped with the others; start the run again to continue.")
        if (job.run_folder / "stop").exists():
            raise TrainingError(f"Run {job.run_id} was stopped by `userrl runs stop`; start it again to continue.")
        budget()
        for line in lines:
            progress(line)
            alarms()

    def waiting(holders: str) -> None:
        say("%s: waits for a slot, held: %s", job.stage, holders)
        set_waiting(job.run_folder, holders)

    count, among = slots_for(job)
    places = take(home() / "slots", count, among, waiting=waiting, holder_of=holder_of)
    with nullcontext(share.slots) if share else places as taken, ExitStack() as leases:
        if share is None:
            set_waiting(job.run_folder, None)
        began = time.monotonic()
        for slot in taken if share is None else ():
            leases.enter_context(lease(slot))
        processes.run(
            [sys.executable, "-u", "-m", MODULE, str(path)],
            job.folder,
            name="The trainer",
            on_tick=tick,
            env=_environment(taken) | ({"USERRL_THREADS": str(share.threads)} if share else {}),
            keep_open=[slot.descriptor for slot in taken],
            grace=STOP_SECONDS,
            by=workers.spawn if workers is not None and _imports_torch(job) else None,
        )
    alarms(last=True)
    result = job.result()
    if result is None:
        raise CheckpointError(
            f"Stage {job.stage} ended, but what it left in {job.folder} is not what it says; delete that folder and run again."
        )
    say("%s: done in %.1f s", job.stage, time.monotonic() - began)
    return result


def _imports_torch(job: StageJob) -> bool:
    """Whether the job is for this backend's trainer; demonstrations of a script have begun before torch is imported."""
    return job.backend == "local" and (job.kind != "distill" or job.inputs.before is not None)


def slots_for(job: StageJob) -> tuple[int, tuple[Slot, ...]]:
    """How many slots a stage holds, and among which: a training on verl has as many GPUs as its profile says for its kind, and so
    have checkpoints that a rollout engine plays.

    GPUs on which the run serves its users are not among them; verl on a Ray cluster elsewhere holds one place here.
    """
    if job.kind == "evaluate" and job.actors and all(actor.kind != "checkpoint" for actor in job.actors):
        return 0, ()  # no model of ours is loaded
    hardware = job.recipe.hardware
    serving = {slot.name for slot in named(hardware.user_gpus)}
    among = tuple(slot for slot in slots() if slot.name not in serving)
    gpus = sum(slot.gpu is not None for slot in among)
    if job.kind == "evaluate" or (job.kind == "distill" and job.inputs.before is not None):
        return engine_gpus(hardware, gpus), among
    if job.kind == "distill" or job.backend != "verl" or hardware.ray_address or not gpus:
        return 1, among
    return hardware.cold_start_gpus if job.kind == "sft" else hardware.node_gpus, among


def _environment(taken: Sequence[Slot]) -> dict[str, str]:
    gpus = [str(slot.gpu) for slot in taken if slot.gpu is not None]
    return {**quiet(), "CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else quiet()


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
