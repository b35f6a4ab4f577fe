"""One stage of a run as a child process in a free slot of this machine, without a Prefect server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from userrl.machine.engine import engine_gpus
from userrl.machine.home import home, number_in_environment, quiet
from userrl.machine.slots import Slot, named, slots, take, threads
from userrl.run.alarms import AlarmWatch
from userrl.run.budget import BudgetGuard
from userrl.run.job import StageJob
from userrl.run.results import Result
from userrl.run.run import asked_to_stop, holder_of, set_waiting, waiting_sentence
from userrl.stages.workers import MODULE, Workers
from userrl_core import processes
from userrl_core.errors import CheckpointError, TrainingError
from userrl_core.json_files import GrowingLines

STOP_SECONDS, REAP_SECONDS = 20.0, 5.0
"""Seconds that a trainer may take to end: an interrupted one, and one left by an earlier flow."""


RETRIES = number_in_environment("USERRL_STAGE_RETRIES", 1, 0, 100)
"""Number of automatic restarts of a stage after its trainer died (not after it refused its input)."""

RETRY_SECONDS = 2.0

REUSED = "%s: reused, because it finished earlier with the same inputs"


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a slot, for stages that run in parallel in it. halted: whether they must stop."""

    slots: tuple[Slot, ...]
    threads: int
    halted: Callable[[], bool]


@contextmanager
def shared_slot(stages: int, folder: Path, say: Callable[..., None] = lambda *args: None) -> Iterator[Share | None]:
    """Provide a CPU slot for several parallel stages, with its threads divided among them.

    Yields None on a machine with GPUs, where each stage has its own slot. An exception in the block stops all stages. folder:
    the run's folder.
    """
    among = slots()
    if any(slot.gpu is not None for slot in among):
        yield None
        return

    def waiting(holders: str) -> None:
        say("%s", waiting_sentence(holders))
        set_waiting(folder, holders)

    halt = Event()
    with take(home() / "slots", 1, among, waiting=waiting, holder_of=holder_of) as acquired:
        set_waiting(folder, None)
        try:
            yield Share(acquired, max(1, threads() // stages), halt.is_set)
        except BaseException:
            halt.set()
            raise


def execute(
    job: StageJob,
    share: Share | None = None,
    workers: Workers | None = None,
    *,
    progress: Callable[[dict[str, Any]], None] = lambda line: None,
    say: Callable[..., None] = lambda *args: None,
    lease: Callable[[Slot], AbstractContextManager[None]] = lambda slot: nullcontext(),
) -> Result:
    """Run a job's process in a free slot of this machine, without a Prefect server. lease: held together with the slot.

    Raises TrainingError with the process's own sentence if it fails, CheckpointError if its result is invalid.
    """
    killed = processes.reap(
        job.folder, grace=REAP_SECONDS
    )  # before waiting for a slot, which a leftover process may hold
    if killed:
        say("%s: stopped %d leftover process(es) of an earlier attempt", job.stage, killed)
    if job.damaged():
        say("%s: finished earlier, but its files are gone or changed; done again", job.stage)
    if job.has_other_inputs():
        earlier = job.start_over()
        say(
            "%s: done again from its start, because a stage before it has another result now. Its earlier files are in %s",
            job.stage,
            earlier,
        )
    path = job.write()
    lines = GrowingLines(job.progress_file, from_end=True)
    alarms, budget = AlarmWatch(job, say), BudgetGuard(job)

    def tick() -> None:
        if share is not None and share.halted():
            raise TrainingError(
                "run.stopped",
                f"Stage {job.stage} was stopped together with the others. Start the run again to continue.",
            )
        if asked_to_stop(job.run_folder):
            raise TrainingError(
                "run.stopped", f"Run {job.run_id} was stopped by `userrl runs stop`. Start it again to continue."
            )
        budget()
        for line in lines:
            progress(line)
            alarms()

    def waiting(holders: str) -> None:
        say("%s: %s", job.stage, waiting_sentence(holders))
        set_waiting(job.run_folder, holders)

    count, among = slots_for(job)
    slot_lock = take(home() / "slots", count, among, waiting=waiting, holder_of=holder_of)
    with nullcontext(share.slots) if share else slot_lock as slots, ExitStack() as leases:
        if share is None:
            set_waiting(job.run_folder, None)
        began = time.monotonic()
        for slot in slots if share is None else ():
            leases.enter_context(lease(slot))
        processes.run(
            [sys.executable, "-u", "-m", MODULE, str(path)],
            job.folder,
            name="The trainer",
            on_tick=tick,
            env=_environment(slots) | ({"USERRL_THREADS": str(share.threads)} if share else {}),
            keep_open=[slot.descriptor for slot in slots],
            grace=STOP_SECONDS,
            by=workers.spawn if workers is not None and _imports_torch(job) else None,
        )
    alarms(last=True)
    result = job.result()
    if result is None:
        raise CheckpointError(
            "stage.damaged",
            f"Stage {job.stage} ended, but the files in {job.folder} do not match its result. Delete that "
            "folder and run again.",
        )
    say("%s: done in %.1f s", job.stage, time.monotonic() - began)
    return result


def _imports_torch(job: StageJob) -> bool:
    """Return whether the job needs torch here. Scripted demonstrations begin before torch is imported."""
    return job.backend == "local" and (job.kind != "distill" or job.inputs.before is not None)


def slots_for(job: StageJob) -> tuple[int, tuple[Slot, ...]]:
    """Return the number of slots that a stage holds, and the slots to choose from.

    A training on verl has the GPUs that its profile sets for its kind. So have checkpoints on a rollout engine. GPUs that
    serve the run's users are excluded. verl on a remote Ray cluster holds one slot here.
    """
    if job.kind == "evaluate" and job.actors and all(actor.kind != "checkpoint" for actor in job.actors):
        return 0, ()  # no local model is loaded
    hardware = job.recipe.hardware
    serving = {slot.name for slot in named(hardware.user_gpus)}
    among = tuple(slot for slot in slots() if slot.name not in serving)
    gpus = sum(slot.gpu is not None for slot in among)
    if job.kind == "evaluate" or (job.kind == "distill" and job.inputs.before is not None):
        return engine_gpus(hardware, gpus), among
    if job.kind == "distill" or job.backend != "verl" or hardware.ray_address or not gpus:
        return 1, among
    return hardware.cold_start_gpus if job.kind == "sft" else hardware.node_gpus, among


def _environment(slots: Sequence[Slot]) -> dict[str, str]:
    gpus = [str(slot.gpu) for slot in slots if slot.gpu is not None]
    return {**quiet(), "CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else quiet()
