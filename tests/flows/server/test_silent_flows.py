"""The automation that ends flow runs whose process is gone, evaluated by Prefect's own code on events with made times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, json, sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from prefect.server.database import provide_database_interface
from prefect.server.events import triggers
from prefect.server.events.models import automations
from prefect.server.events.schemas.automations import Automation, AutomationUpdate
from prefect.server.events.schemas.events import ReceivedEvent

from flows.server.provision import ZOMBIES

fired = []

async def fire(session, firing):
    fired.extend(firing.triggering_labels.values())

async def ends(events, until):
    run, began = f"prefect.flow-run.{uuid4()}", datetime.now(UTC)
    for seconds, name in events:
        occurred = began + timedelta(seconds=seconds)
        resource = {"prefect.resource.id": run}
        await triggers.reactive_evaluation(ReceivedEvent(id=uuid4(), occurred=occurred, event=name, resource=resource))
    for trigger in list(triggers.triggers.values()):
        await triggers.proactive_evaluation(trigger, began + timedelta(seconds=until))
    return run in fired

async def main():
    database = provide_database_interface()
    tables = [t for name, t in database.Base.metadata.tables.items() if name.startswith(("automation", "event", "composite"))]
    async with (await database.engine()).begin() as connection:
        await connection.run_sync(lambda bind: database.Base.metadata.create_all(bind, tables=tables))
    stored = ZOMBIES.model_dump(mode="json", exclude_unset=True)
    assert AutomationUpdate.model_validate(stored).trigger.after == ZOMBIES.trigger.after
    async with database.session_context(begin_transaction=True) as session:
        await automations.create_automation(session=session, automation=Automation.model_validate({**stored, "id": uuid4()}))
        await triggers.load_automations(session)
    triggers.fire = fire
    print(json.dumps([await ends(*history) for history in json.loads(sys.argv[1])]))

asyncio.run(main())
"""

RUNNING, HEARTBEAT, COMPLETED = (f"prefect.flow-run.{name}" for name in ("Running", "heartbeat", "Completed"))
HISTORIES = {
    "killed before its first heartbeat": ([(0, RUNNING)], 91),
    "found running by a new server, and silent since": ([(0, "userrl.flow-run.found")], 91),
    "killed later": ([(0, RUNNING), (1, HEARTBEAT), (31, HEARTBEAT)], 122),
    "just started": ([(0, RUNNING)], 80),
    "at work": ([(0, RUNNING), (1, HEARTBEAT), (31, HEARTBEAT), (61, HEARTBEAT)], 100),
    "completed before its first heartbeat": ([(0, RUNNING), (10, COMPLETED)], 91),
}


@pytest.mark.slow
def test_a_flow_run_without_a_sign_of_life_for_90_seconds_is_ended_even_before_its_first_heartbeat(
    tmp_path: Path,
) -> None:
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")},
        "USERRL_HOME": str(tmp_path),
        "PREFECT_HOME": str(tmp_path),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{tmp_path}/prefect.db",
    }
    command = [sys.executable, "-c", SCRIPT, json.dumps([*HISTORIES.values()])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    crashed = dict(zip(HISTORIES, json.loads(done.stdout.splitlines()[-1]), strict=True))
    assert crashed == {
        "killed before its first heartbeat": True,
        "found running by a new server, and silent since": True,
        "killed later": True,
        "just started": False,
        "at work": False,
        "completed before its first heartbeat": False,
    }
