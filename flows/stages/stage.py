"""One stage of a run as a Prefect task around a child process.

A stage is done if its result file and the files named there exist. Prefect keeps no result, because it would keep
absolute paths, and a home may be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.concurrency.sync import concurrency
from prefect.states import Completed

from flows.server.settings import temporary_server
from flows.stages.artifacts import ProgressArtifact
from userrl.machine.slots import Slot
from userrl.run.job import StageJob
from userrl.run.results import RESULTS, Result
from userrl.run.run import Run
from userrl.stages.execution import RETRIES, RETRY_SECONDS, REUSED, Share, execute
from userrl.stages.workers import Workers
from userrl_core import processes

LEASE_SECONDS = 60.0
LEASE_PATIENCE = 5.0
"""Seconds to wait for a server's lease once we hold the lock file. A killed holder's lease outlives it by a minute."""


def run_stage(run: Run, job: StageJob, share: Share | None = None, workers: Workers | None = None) -> Result:
    """Return the stage's result, reused if an earlier one is still valid. share: its part of a slot that is already held."""
    run.set_status("running", stage=job.stage)
    state = stage.with_options(task_run_name=job.stage)(job, share, workers, return_state=True)
    return RESULTS[job.kind].model_validate(state.result())


def _may_help(task: Any, task_run: Any, state: Any) -> bool:
    """Return whether a retry may help: only if the process died, not if it refused its input or the run was cancelled."""
    try:
        state.result()
    except processes.ProcessDied:
        return True
    except BaseException:  # noqa: BLE001  any other reason would recur
        return False
    return False


@task(
    name="stage",
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=RETRIES,
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=_may_help,
    log_prints=False,
)
def stage(job: StageJob, share: Share | None = None, workers: Workers | None = None) -> Any:
    """Run a job in a child process, or reuse its result file (shown by Prefect as Cached). Returns the result as JSON."""
    say = get_run_logger().info
    if (earlier := job.finished()) is not None:
        say(REUSED, job.stage)
        job.reused_file.touch()
        return Completed(name="Cached", data=earlier.model_dump(mode="json"))
    artifact = ProgressArtifact(job)
    done = execute(job, share, workers, progress=artifact, say=say, lease=lambda slot: _lease(slot, say))
    return done.model_dump(mode="json")


@contextmanager
def _lease(slot: Slot, say: Callable[..., None]) -> Iterator[None]:
    """Hold the slot's limit on the server, to show the slot as taken. The file lock decides; a server that is away
    stops nothing.
    """
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
    except Exception as error:  # noqa: BLE001  the lease is for display, never fatal
        say(
            "the server granted no lease for %s (%s); continuing, because we hold its lock file",
            slot.name,
            type(error).__name__,
        )
        yield
        return
    try:
        yield
    finally:
        with suppress(Exception):
            lease.__exit__(None, None, None)
