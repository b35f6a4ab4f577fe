"""Demonstrations by a served model: what a second start plays, pays for and keeps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import curricula
from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer, prompt_text, tool_call
from userrl.run.job import StageJob
from userrl.run.results import DistillResult
from userrl.worker.main import run
from warehouse import open_warehouse

EPISODES = 12
PROBE = "Answer with ok."


class Agent:
    """A model that asks, searches and answers. While it is down, it refuses those about a meal."""

    def __init__(self, down: bool) -> None:
        self.down = down

    def __call__(self, body: Body) -> Answer:
        if self.down and PROBE not in prompt_text(body) and refuses(body):
            return Answer(body=b'{"error": {"message": "no money", "code": "insufficient_quota"}}', status=429)
        said = sum(message["role"] == "assistant" for message in body["messages"])
        shown = re.findall(r"H\d+", str(body["messages"][-1]["content"])) or ["H1"]
        calls = [("action", "price?"), ("action", "area?"), ("search", "hotel"), ("answer", shown[0])]
        return Answer("", [tool_call(*calls[min(said, 3)], said)], "tool_calls")


def refuses(body: Body) -> bool:
    """Whether the user's first words are about a meal."""
    first = next(message for message in body["messages"] if message["role"] == "user")
    return "meal" in first["content"]


def job_in(home: Path, **server: Any) -> StageJob:
    recipe = curricula.load(
        "equalized-r2g",
        "laptop-quick",
        {
            "demonstrations.policy": "gpt-4o",
            "demonstrations.episodes": EPISODES,
            "demonstrations.top_k": 5,
            "demonstrations.horizon": 5,
            **({"demonstrations.server": server} if server else {}),
        },
    )
    folder = home / "runs" / "r1" / "stages" / "distill"
    folder.mkdir(parents=True)
    return StageJob(
        kind="distill", stage="distill", run_id="r1", folder=folder, warehouse=home / "warehouse", recipe=recipe
    )


def finished(job: StageJob) -> DistillResult:
    run(job)
    result = job.result()
    assert isinstance(result, DistillResult)
    return result


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-no-key")
    return monkeypatch


def test_a_second_start_plays_only_what_was_not_answered_and_keeps_what_one_start_would(
    tmp_path: Path, address: pytest.MonkeyPatch
) -> None:
    with MockServer(Agent(down=False)) as server:
        address.setenv("OPENAI_BASE_URL", server.base_url)
        whole = finished(job_in(tmp_path / "whole"))
        every = len(server.requests)
    agent, job = Agent(down=True), job_in(tmp_path / "stopped")
    with MockServer(agent) as server:
        address.setenv("OPENAI_BASE_URL", server.base_url)
        with raises("demonstrations.unanswered", f"of {EPISODES} demonstrations have no score"):
            run(job)
        refused = sum(map(refuses, server.requests))
        before = len(server.requests)
        assert 0 < refused < before
        agent.down = False
        continued = finished(job)
        asked = server.requests[before:]
    assert (continued.sha256, continued.played, continued.kept) == (whole.sha256, EPISODES, 5)
    assert all(map(refuses, (body for body in asked if PROBE not in prompt_text(body))))
    assert before + len(asked) == every + refused + 1, "each answered conversation once, one probe more"
    with open_warehouse(job.warehouse) as warehouse:
        counted = warehouse.sql("SELECT count(*), count(*) FILTER (admitted) FROM trajectories").fetchall()
        paid = warehouse.sql("SELECT sum(attempts)::INT FROM model_calls_all").fetchall()
    assert counted == [(EPISODES, EPISODES)]
    assert paid == [(before + len(asked) - 2,)], "the ledger has every request but the two probes"


def test_a_server_that_gives_out_again_fails_the_stage_again(tmp_path: Path, address: pytest.MonkeyPatch) -> None:
    job = job_in(tmp_path)
    with MockServer(Agent(down=True)) as server:
        address.setenv("OPENAI_BASE_URL", server.base_url)
        for _ in range(2):
            with raises("demonstrations.unanswered", "userrl warehouse export chats.jsonl"):
                run(job)
    assert job.result() is None


def test_an_address_that_no_server_uses_voids_no_demonstrations(tmp_path: Path, address: pytest.MonkeyPatch) -> None:
    with MockServer(Agent(down=False)) as server:
        job = job_in(tmp_path, base_url=server.base_url)
        finished(job)
        before = len(server.requests)
        (job.folder / "result.json").unlink()
        address.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        assert finished(job).kept == 5
        assert len(server.requests) == before


def test_a_served_demonstrator_has_the_options_of_a_served_user(tmp_path: Path, address: pytest.MonkeyPatch) -> None:
    with MockServer(Agent(down=False)) as server:
        options = {"base_url": server.base_url, "token_field": "max_completion_tokens", "temperature": None}
        assert finished(job_in(tmp_path, **options)).kept == 5
        fields = {name for body in server.requests if PROBE not in prompt_text(body) for name in body}
    assert "max_completion_tokens" in fields
    assert not {"max_tokens", "temperature"} & fields
    with raises("user.bad_option", "time_out"):
        job_in(tmp_path / "other", time_out=3)
    with raises("recipe.unknown_key", "the model's name is demonstrations.policy"):
        job_in(tmp_path / "other", model="gpt-5")


def test_a_server_that_does_not_answer_is_noticed_before_a_conversation_begins(
    tmp_path: Path, address: pytest.MonkeyPatch
) -> None:
    with MockServer(lambda body: Answer(body=b"{}", status=401)) as server:
        address.setenv("OPENAI_BASE_URL", server.base_url)
        with raises("model.server_down", "demonstrator"):
            run(job_in(tmp_path))
        assert all(PROBE in prompt_text(body) for body in server.requests)
