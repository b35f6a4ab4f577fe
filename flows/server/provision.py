"""Set-up of a server before its deployments: the work pool, a limit per slot, and the automation that finds dead runs.

``python -m flows.server.provision [--wait] [QUEUE ...]`` can be repeated. With --wait it waits for our server at
``$PREFECT_API_URL``, so it can start in parallel with the server. Both take seconds to import Prefect.
"""

from __future__ import annotations

from flows.server.settings import settle

settle()

import asyncio  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from datetime import UTC, datetime, timedelta  # noqa: E402
from urllib.parse import urlsplit  # noqa: E402

from prefect.automations import Automation  # noqa: E402
from prefect.client.orchestration import PrefectClient, get_client  # noqa: E402
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate, WorkPoolUpdate  # noqa: E402
from prefect.client.schemas.filters import (  # noqa: E402
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType  # noqa: E402
from prefect.events.actions import ChangeFlowRunState  # noqa: E402
from prefect.events.schemas.automations import EventTrigger, Posture  # noqa: E402
from prefect.events.utilities import emit_event  # noqa: E402
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound  # noqa: E402
from prefect.states import Cancelled  # noqa: E402

from flows.server.own_server import server_state  # noqa: E402
from flows.server.password import URL  # noqa: E402
from userrl.machine.slots import slots  # noqa: E402

POOL = "gpu"
SILENT_SECONDS = 90
"""A flow run sends a heartbeat every 30 s. Three missed ones mean that its process or machine is gone."""
MISSED_SECONDS = 600
"""A scheduled run this late was missed: no worker was running at its time."""

TEMPLATE = {
    "job_configuration": {
        "env": "{{ env }}",
        "working_dir": "{{ working_dir }}",
        "stream_output": "{{ stream_output }}",
    },
    "variables": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "env": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"PYTHONUNBUFFERED": {"type": "string"}},
                "default": {"PYTHONUNBUFFERED": "1"},
            },
            "working_dir": {"type": "string", "description": "The folder with prefect.yaml."},
            "stream_output": {"type": "boolean", "default": False},
        },
        "required": ["working_dir"],
    },
}
"""Process settings that a deployment or flow run may choose: no command, and no variable that changes what Python loads."""

_HEARTBEAT = "prefect.flow-run.heartbeat"
_RUNNING = "prefect.flow-run.Running"
"""Emitted by the server itself. A flow run that is killed in its first second sends no heartbeat."""
_FOUND = "userrl.flow-run.found"
"""Emitted here for each flow run that should be running. A server that was killed too may have missed the others."""
_ENDS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Cancelled", "Crashed")}
ZOMBIES = Automation(
    name="crash-silent-flows",
    description="Marks a flow run as Crashed when its heartbeat stops, so that it can be started again.",
    trigger=EventTrigger(
        after={_RUNNING, _HEARTBEAT, _FOUND},
        expect={_HEARTBEAT, *_ENDS},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=SILENT_SECONDS),
    ),
    actions=[
        ChangeFlowRunState(
            name="Crashed",
            force=False,
            state=StateType.CRASHED,
            message=f"No heartbeat for {SILENT_SECONDS} s: process or machine died. Start the run again to continue it.",
        )
    ],
)


async def provision(queues: Sequence[str] = ()) -> None:
    """Create what is missing. queues: work queues that a worker will name; it takes no run while one is missing."""
    async with get_client() as client:
        await _pool(client)
        for queue in queues:
            await _queue(client, queue)
        for slot in slots():
            await _limit(client, slot.name)
        await _automation(client)
        await _skip_missed(client)
        await _watch_running(client)


async def _pool(client: PrefectClient) -> None:
    try:
        await client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=TEMPLATE))
    except ObjectAlreadyExists:  # it may be from an earlier version, whose template allowed a command
        await client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=TEMPLATE))


async def _queue(client: PrefectClient, name: str) -> None:
    try:
        await client.read_work_queue_by_name(name, work_pool_name=POOL)
    except ObjectNotFound:
        await client.create_work_queue(name, work_pool_name=POOL)


async def _limit(client: PrefectClient, name: str) -> None:
    try:
        await client.read_global_concurrency_limit_by_name(name)
    except ObjectNotFound:
        await client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=1))


async def _automation(client: PrefectClient) -> None:
    """Create the automation, or update one of an earlier version, which waited for a first heartbeat."""
    automations = await client.read_automations_by_name(ZOMBIES.name)
    if not automations:
        await ZOMBIES.acreate()
    elif not (isinstance(automations[0].trigger, EventTrigger) and automations[0].trigger.after >= {_RUNNING, _FOUND}):
        await client.update_automation(automations[0].id, ZOMBIES)


async def _watch_running(client: PrefectClient) -> None:
    """Make the automation wait for the heartbeats of all flow runs that should be running now."""
    states = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.CANCELLING]))
    for run in await client.read_flow_runs(flow_run_filter=FlowRunFilter(state=states)):
        emit_event(_FOUND, {"prefect.resource.id": f"prefect.flow-run.{run.id}", "prefect.resource.name": run.name})


async def _skip_missed(client: PrefectClient) -> None:
    """Cancel scheduled runs whose time passed without a worker. A laptop must not catch up on a week of nights."""
    before = datetime.now(UTC) - timedelta(seconds=MISSED_SECONDS)
    late = FlowRunFilterExpectedStartTime.model_validate({"before_": before})
    waiting = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED]))
    for run in await client.read_flow_runs(flow_run_filter=FlowRunFilter(state=waiting, expected_start_time=late)):
        if run.auto_scheduled:
            await client.set_flow_run_state(
                run.id, Cancelled(message="The scheduled time passed while no worker was running."), force=True
            )


def _wait_for(url: str) -> None:
    """Wait until the home's own server answers at an address. The process that started this one ends it if none comes."""
    parts = urlsplit(url)
    while server_state(parts.port or 80, parts.hostname or "127.0.0.1") != "ours":
        time.sleep(0.1)


if __name__ == "__main__":
    names = sys.argv[1:]
    if names[:1] == ["--wait"]:
        _wait_for(os.environ[URL])
        names = names[1:]
    asyncio.run(provision(names))
