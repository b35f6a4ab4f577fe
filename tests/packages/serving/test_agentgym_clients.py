"""What AgentGym's own clients send (tests/data/agentgym) is answered as they read it."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.packages.serving.test_gyms_over_http import gym_server, items
from tests.places import TESTS
from tests.userrl_core.gyms.recorded import exchanges
from userrl_core.gyms import make
from userrl_core.gyms.registry import unavailable
from userrl_core.interact import InteractCall
from userrl_serving.gym_server import GymServer, app_of

RECORDED = TESTS / "data" / "agentgym"
ENVS = ["textcraft", "babyai", "searchqa", pytest.param("sciworld", marks=pytest.mark.slow)]


def served(server: GymServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app_of(server)), base_url="http://gym")


@pytest.mark.parametrize("env", ENVS)
async def test_the_requests_of_agentgym_s_own_clients_get_the_answers_that_they_read(env: str) -> None:
    if reason := unavailable(env):
        pytest.skip(reason)
    path = RECORDED / f"{env}.txt"
    ids = [line.removeprefix("# ") for line in path.read_text().splitlines() if line.startswith("# ")]
    server = GymServer(env)
    index = {task.id: number for number, task in enumerate(server.pool)}
    session, item = ("env_idx", "id") if env == "searchqa" else ("id", "data_idx")
    numbers: list[int] = []
    async with served(server) as client:
        for method, address, body, recorded, status in exchanges(path):
            sent = dict(body) if body is not None else None
            if sent is not None and session in sent:
                sent[session] = numbers[sent[session] - 1]
            if address == "/reset":
                assert sent is not None
                sent[item] = index[ids[sent[item]]]
            where = re.sub(r"(env_idx=)(\d+)", lambda found: f"{found[1]}{numbers[int(found[2]) - 1]}", address)
            answer = await client.request(method, where, json=sent)
            given, expected = answer.json(), json.loads(recorded)
            if address == "/create":
                numbers.append(given["id"] if isinstance(given, dict) else given)
            if isinstance(given, dict) and "id" in given:
                given["id"] = numbers.index(given["id"]) + 1
            if isinstance(given, int) and not isinstance(given, bool):
                given = len(numbers)
            assert (answer.status_code, comparable(env, given)) == (status, comparable(env, expected))
    assert len(numbers) == 3
    assert len(server) == 0


def comparable(env: str, answer: Any) -> Any:
    """Of what sciworld shows the words alone: its simulator lists things in another order each time."""
    if env == "sciworld" and isinstance(answer, dict) and "observation" in answer:
        return answer | {"observation": sorted(re.findall(r"\w+", answer["observation"]))}
    return answer


@pytest.mark.parametrize("env", ENVS)
async def test_under_its_name_in_agentgym_each_gym_is_played_as_agentgym_s_server(env: str) -> None:
    if reason := unavailable(env):
        pytest.skip(reason)
    with gym_server(env) as (server, address):
        local = make(env, server.pool[0])
        remote = make("agentgym", items(1, env)[0], servers=(address,))
        openings = [local.reset(seed=0), remote.reset(seed=0)]
        for call in plan(env, server):
            expected = await local.step(call)
            text = f"<{call.choice}>{call.content}</{call.choice}>" if env == "searchqa" else call.content
            given = await remote.step(InteractCall("action", text))
        assert (given.terminated, remote.succeeded, remote.score()) == (True, local.succeeded, local.score())
        assert expected.terminated
        assert comparable(env, {"observation": openings[0]}) == comparable(env, {"observation": openings[1]})
        await remote.aclose()
        await local.aclose()


def plan(env: str, server: GymServer) -> list[InteractCall]:
    """Calls that end the first task: with a success, or for sciworld with the wrong focus."""
    if env == "sciworld":
        return [InteractCall("action", "focus on air")]
    if env == "babyai":
        return [InteractCall("action", "go to red ball 1")]
    task = server.pool[0]
    gym = make(env, task)
    return list(type(gym).gold(task, gym.config))  # type: ignore[attr-defined]


async def test_searchqa_s_errors_have_another_status_as_its_answers_have_no_place_for_them() -> None:
    async with served(GymServer("searchqa")) as client:
        for path, body in (("reset", {"id": 0}), ("step", {"action": "<search>x</search>"})):
            answer = await client.post(f"/{path}", json={"env_idx": 7, **body})
            assert (answer.status_code, answer.json()) == (
                500,
                {"error": "There is no session 7. Create one first.", "code": "gym.misused"},
            )
        assert (await client.get("/observation", params={"env_idx": 7})).status_code == 500
        assert (await client.get("/observation")).status_code == 422
        assert (await client.post("/close", json={"env_idx": 7})).json() is False


async def test_observation_is_searchqa_s_question_throughout_the_episode() -> None:
    async with served(GymServer("searchqa")) as client:
        number = (await client.post("/create", json={"id": 0})).json()
        question = (await client.get("/observation", params={"env_idx": number})).json()
        step = await client.post("/step", json={"env_idx": number, "action": "<search>a town</search>"})
        assert step.json()["observation"].startswith("<information>1. ")
        assert question.startswith("Question: ")
        assert (await client.get("/observation", params={"env_idx": number})).json() == question
