"""A clock starts a sweep, and a run that is watched shows its steps."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps.rig import TINY, Machine, small_space
from tests.waits import wait_for
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A server and a worker."""
    machine = Machine(tmp_path_factory.mktemp("machine") / "home")
    try:
        machine.server()
        machine.provision("sweep/gamma", "train/equalized-r2g")
        machine.worker("one")
        yield machine
    finally:
        machine.kill_everything()


def test_a_cron_schedule_fires_a_sweep_that_trains(machine: Machine, tmp_path: Path) -> None:
    space = small_space(
        tmp_path,
        overrides=TINY,
        parameters={"gamma": {"key": "credit.gamma", "options": [0.8]}},
        budget={"trials": 1},
        confirm={"seeds": []},
    )
    deployment = machine.post("deployments/name/sweep/gamma", method="GET")["id"]
    parameters = {"space": str(space), "trials": 1, "poll_seconds": 0.5, "renew": True}
    every_minute = {"schedule": {"cron": "* * * * *", "timezone": "UTC"}, "active": True, "parameters": parameters}
    (schedule,) = machine.post(f"deployments/{deployment}/schedules", [every_minute])
    sweeps = {"deployments": {"id": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_ASC"}

    def begun() -> list[dict[str, object]]:
        return [run for run in machine.flow_runs(**sweeps) if run["start_time"] is not None]

    first = wait_for(begun, 240, "a scheduled sweep")[0]
    machine.post(f"deployments/{deployment}/schedules/{schedule['id']}", method="DELETE")
    wait_for(lambda: machine.state(str(first["id"])) in FINAL, 600, "its end")

    assert machine.state(str(first["id"])) == "COMPLETED", machine.said()
    assert first["auto_scheduled"]
    with open_warehouse(machine.home / "warehouse") as warehouse:
        assert warehouse.sql("select study, number, state from trials where study = 'tiny'").fetchall() == [
            ("tiny", 0, "complete")
        ]
    (trial,) = [run for run in machine.flow_runs() if "attempt" in (run["idempotency_key"] or "")]
    link = machine.post(f"task_runs/{trial['parent_task_run_id']}", method="GET")
    assert (link["flow_run_id"], trial["name"]) == (first["id"], "gamma=0.8")


def test_a_run_that_is_watched_by_prefect_shows_its_steps_and_a_failure_its_sentence(
    machine: Machine, tmp_path: Path
) -> None:
    def watched(overrides: dict[str, object]) -> str:
        parameters = {"profile": "laptop-quick", "wandb": "off", "overrides": overrides}
        given = [part for key, value in parameters.items() for part in ("-p", f"{key}={json.dumps(value)}")]
        command = machine.found(("prefect", "deployment", "run", "train/equalized-r2g", "--watch", *given))
        wide = {**machine.environment, "COLUMNS": "400"}
        return subprocess.run(command, env=wide, capture_output=True, text=True, timeout=600, check=False).stdout

    said = watched(TINY)
    assert re.search(r"rl-1: step 4 of 4, score \d\.\d", said), said
    assert "Flow run finished successfully in 'Completed'." in said
    said = watched({**TINY, "model.path": str(tmp_path)})
    assert f"No model can be loaded from {tmp_path}" in said
    assert "Flow run finished in state 'Failed'" in said
