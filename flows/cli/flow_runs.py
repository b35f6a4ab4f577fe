"""The flow runs of a worker: a line when one starts or ends, and their cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from datetime import UTC, datetime
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort

from flows.cli.services import Services
from flows.cli.terminal import plain
from flows.cli.watch import AWAY, CANCEL_SECONDS, cancel
from userrl.run.run import host_of_flow_run, of_flow_run, waiting_sentence

LOOK_SECONDS = 1.0
NEWEST_FIRST = FlowRunSort.START_TIME_DESC
"""The server returns 200 flow runs at most: the newest, whatever ran before in a long evening."""


async def follow_all(running: Services) -> None:
    """Print a line when a flow run starts and when it ends, until this coroutine is cancelled.

    Raises TrainingError if the worker or the server has ended.
    """
    after = FlowRunFilterStartTime.model_validate({"after_": datetime.now(UTC)})
    began = FlowRunFilter(start_time=after)
    printed_news: dict[UUID, set[StateType | str]] = {}
    labels: dict[UUID, str] = {}
    async with get_client() as client:
        while True:
            running.check()
            with contextlib.suppress(*AWAY):
                for run in reversed(await client.read_flow_runs(flow_run_filter=began, sort=NEWEST_FIRST)):
                    state = run.state
                    if state is None or not (state.is_running() or state.is_final()):
                        continue
                    waits = waited_for(run)
                    for news in (state.type, waits):
                        if news and news not in printed_news.setdefault(run.id, set()):
                            printed_news[run.id].add(news)
                            print(await _line(client, run, labels, waits if news == waits else ""), flush=True)
            await asyncio.sleep(LOOK_SECONDS)


async def cancel_all(running: Services) -> None:
    """Cancel the flow runs of our worker, and wait a moment, so that trainers can stop by themselves."""
    with contextlib.suppress(*AWAY):
        await asyncio.wait_for(_cancel(running), CANCEL_SECONDS)


async def _cancel(running: Services) -> None:
    process_ids = {str(process.pid) for process in running.processes()}
    active = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING]))
    async with get_client() as client:
        runs = await client.read_flow_runs(flow_run_filter=FlowRunFilter(state=active))
        hosts = (None, socket.gethostname())  # a process of another machine may have the same id
        ours = [
            run.id for run in runs if run.infrastructure_pid in process_ids and host_of_flow_run(str(run.id)) in hosts
        ]
        await cancel(client, ours, "Stopped with `userrl up`.")


def waited_for(flow_run: FlowRun) -> str:
    """Return which run a training flow waits for, as a sentence; "" if it does not wait."""
    run = of_flow_run(str(flow_run.id)) if flow_run.state is not None and flow_run.state.is_running() else None
    status = None if run is None else run.status
    return waiting_sentence(status.waits) if status is not None and status.waits else ""


async def _line(client: PrefectClient, run: FlowRun, labels: dict[UUID, str], waits: str) -> str:
    """Return time, deployment, name and state of a flow run, and the reason of a failure or what it waits for."""
    state = run.state
    assert state is not None
    deployment = ""
    if run.deployment_id is not None:
        if run.deployment_id not in labels:
            known = await client.read_deployment(run.deployment_id)
            flow = await client.read_flow(known.flow_id)
            labels[run.deployment_id] = f"{flow.name}/{known.name}"
        deployment = labels[run.deployment_id]
    name = waits or (
        "started by its schedule" if state.is_running() and run.auto_scheduled else state.type.value.lower()
    )
    reason = (
        f": {plain(state.message)}" if state.message and not state.is_running() and not state.is_completed() else ""
    )
    return f"{datetime.now():%H:%M:%S}  {deployment}  {run.name}  {name}{reason}"
