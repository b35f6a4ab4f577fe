"""`prefect deployment run train/equalized-r2g -p backend=verl`: server, pool, worker and one step of stock verl.

On a GPU host the platform and the rollout engine differ.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.llama import llama
from tests.sweeps.rig import Machine
from tests.userrl_core.training.verl.rig import SMALL_BATCHES, hardware, on_cpu
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def one_step(folder: Path, python: str) -> dict[str, Any]:
    """The overrides of a run whose only RL stage has one step. python: verl's interpreter."""
    return {
        "model": {"path": str(llama(folder / "model")), "prompt_style": "brief"},
        "demonstrations": {"episodes": 20, "top_k": 8, "horizon": 6},
        "cold_start": {"steps": 1, "batch": 8, "cutoff": 768},
        "algorithm": SMALL_BATCHES,
        "evaluate": {"tasks": 2, "validation_tasks": 1, "horizon": 4, "gyms": ["travel"]},
        "stages": [{"steps": 1, "horizon": 4, "mix": {"travel": 1}}],
        "hardware": hardware(python),
    }


def test_a_deployment_trains_on_verl_through_the_server_the_pool_and_a_worker(
    tmp_path: Path, forked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu(monkeypatch)
    machine = Machine(tmp_path / "home", slots="cpu-0")
    deployment = ("train/equalized-r2g", "-p", "backend=verl")
    try:
        machine.server()
        machine.provision("train/equalized-r2g")
        machine.worker("gpu-host")
        overrides = f"overrides={json.dumps(one_step(tmp_path, forked))}"
        shown = machine.once("prefect", "deployment", "run", *deployment, "-p", overrides, "--watch")
        (flow_run,) = re.findall(r"UUID: (\S+)", shown)
        stored = machine.post(f"flow_runs/{flow_run}", method="GET")
        assert stored["state"]["type"] == "COMPLETED", machine.logged(flow_run)
        assert stored["work_pool_name"] == "gpu"
        assert flow_run in (machine.logs / "gpu-host.log").read_text()
    finally:
        machine.kill_everything()

    (report,) = machine.home.glob("runs/*/report.json")
    told = json.loads(report.read_text())
    assert (told["backend"], told["cpu_seconds"]) == ("verl", {})
    assert "profile `laptop`, seed 0, backend verl." in report.with_suffix(".md").read_text()
    assert told["last"]["step"] == 1
    with open_warehouse(machine.home / "warehouse") as warehouse:
        stages = warehouse.sql("SELECT stage FROM stages WHERE status = 'finished' ORDER BY logged_at").fetchall()
        ((conversations, turns, trained),) = warehouse.sql(
            "SELECT count(DISTINCT traj_id), count(*), count(advantage) FROM turns "
            "WHERE stage = 'rl-1' AND phase = 'train' AND step = 1"
        ).fetchall()
        assert warehouse.sql("SELECT DISTINCT backend FROM runs").fetchall() == [("verl",)]
    assert stages == [("distill",), ("sft",), ("rl-1",), ("evaluate",)]
    assert conversations == 8
    assert turns == trained >= 8
