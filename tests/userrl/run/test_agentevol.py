"""AgentEvol: what is sampled, what is kept, and with which model every iteration begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import curricula
from curricula.host import Host
from tests.makers import raises
from tests.userrl.run.test_laptop_recipes import two_steps_a_stage, whole
from userrl.run.readiness import verdict
from userrl.run.request import TrainRequest
from warehouse import open_warehouse


def test_it_stands_in_place_of_stages_and_needs_the_local_backend() -> None:
    with raises("recipe.conflict"):
        curricula.load("fixed-textcraft", "laptop", {"evolve.iterations": 2})
    answer = verdict(curricula.load("agentevol", "laptop"), Host(), backend="verl")
    assert (answer.kind, answer.reason) == ("refused", "backend")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_iteration_trains_on_the_demonstrations_and_all_that_succeeded_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    monkeypatch.setenv("USERRL_THREADS", "1")
    settings = two_steps_a_stage("agentevol") | {
        "demonstrations.episodes": 300,
        "demonstrations.top_k": 200,
        "cold_start.steps": 150,
        "cold_start.batch": 32,
        "evolve.tasks": 100,
    }
    report = whole(TrainRequest(recipe="agentevol", overrides=settings, wandb="off"))
    stages = Path(report.folder) / "stages"
    before, first, second = (
        (stages / name / "chats.jsonl").read_text() for name in ("distill", "explore-1", "explore-2")
    )
    assert first.startswith(before)
    assert second.startswith(first)
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        for name, more in (("explore-1", first[len(before) :]), ("explore-2", second[len(first) :])):
            succeeded = warehouse.sql(
                f"select count(*) from trajectories where stage = '{name}' and stop_reason = 'success'"
            ).fetchall()
            assert len(more.splitlines()) == succeeded[0][0] > 0
            assert all(json.loads(line)["score"] == 1.0 for line in more.splitlines())
    assert set(report.table) == {"demonstrator", "SFT", "evolved-1", "evolved-2"}
    assert str(report.checkpoint).startswith(str(stages / "sft-2"))
