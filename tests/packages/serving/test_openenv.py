"""Our gyms in OpenEnv's protocol, spoken as its client speaks it; `lab/checks/openenv_check.py` has the client itself."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import websockets

from flows.server.front_door import FrontDoor, served
from tests.ports import free_port
from tests.userrl_core.gyms.local import LOCAL_GYMS
from userrl_core.gyms import make, tasks
from userrl_core.gyms.registry import demonstrator_class
from userrl_core.interact import render_call
from userrl_serving import openenv
from userrl_serving.gym_server import GymServer, app_of


class Client:
    """Messages and answers of one connection."""

    def __init__(self, socket: websockets.ClientConnection, address: str) -> None:
        self.socket, self.address = socket, address

    async def say(self, kind: str, **data: Any) -> dict[str, Any]:
        await self.socket.send(json.dumps({"type": kind, "data": data} if kind != "state" else {"type": kind}))
        return json.loads(await self.socket.recv())  # type: ignore[no-any-return]


@asynccontextmanager
async def connected(name: str, **more: Any) -> AsyncIterator[tuple[GymServer, Client]]:
    server, port = GymServer(name, **more), free_port()
    app = app_of(server)
    app.include_router(openenv.routes(server))
    with served(FrontDoor(app), "127.0.0.1", port):
        async with websockets.connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as socket:
            yield server, Client(socket, f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("name", LOCAL_GYMS)
async def test_over_openenv_every_gym_gives_the_observations_and_rewards_that_it_gives_in_process(name: str) -> None:
    async with connected(name) as (_, client):
        for number, task in enumerate(list(tasks(name, "test"))[:1]):
            opened = (await client.say("reset", data_idx=number, seed=3))["data"]
            local = make(name, task)
            said = local.reset(seed=3)
            assert (opened["observation"]["text"], opened["reward"], opened["done"]) == (said, None, False)
            guide = demonstrator_class(name)(task, random.Random(1), 0.7, local.config)
            while not local.done and local.turns < 12:
                call = guide.act(said)
                expected = await local.step(call)
                given = (await client.say("step", message=render_call(call)))["data"]
                seen = given["observation"]
                assert (seen["text"], given["reward"]) == (expected.observation, expected.reward)
                assert (given["done"], seen["score"]) == (expected.terminated, local.score())
                said = expected.observation
            assert seen["success"] == local.succeeded


async def test_an_episode_in_openenv_s_messages() -> None:
    async with connected("textcraft", options={"tier": "tiny"}) as (server, client):
        assert await client.say("state") == {
            "type": "state",
            "data": {"episode_id": None, "step_count": 0, "task": None},
        }
        opened = await client.say("reset", episode_id="e1", horizon=2, prompt="a name that it does not take")
        observation = opened["data"].pop("observation")
        assert opened == {"type": "observation", "data": {"reward": None, "done": False}}
        assert [message["role"] for message in observation["messages"]] == ["system", "user"]
        assert observation["messages"][1]["content"] == observation["text"]
        assert "at most 2 turns" in observation["messages"][0]["content"]
        assert observation["tools"][0]["function"]["parameters"]["properties"]["choice"]["enum"] == ["action"]
        stepped = await client.say("step", message="inventory", metadata={})
        assert (stepped["data"]["reward"], stepped["data"]["done"], len(server)) == (0.0, False, 1)
        stepped = await client.say("step", message="inventory")
        assert (stepped["data"]["done"], len(server)) == (True, 0)  # its horizon
        first = server.pool[0].key
        state = {"episode_id": "e1", "step_count": 2, "task": first}
        assert (await client.say("state"))["data"] == state
        assert (await client.say("step", message="inventory"))["data"]["code"] == "EXECUTION_ERROR"
        for reset, number in (({}, 1), ({"seed": 5}, 5), ({"seed": 5, "data_idx": 7}, 7)):
            await client.say("reset", **reset)
            assert (await client.say("state"))["data"]["task"] == server.pool[number].key
        await client.socket.send('{"type": "close"}')
        with pytest.raises(websockets.ConnectionClosedOK):
            await client.socket.recv()
        assert len(server) == 0


async def test_what_openenv_s_messages_get_wrong_is_said_with_its_codes_and_the_session_lives_on() -> None:
    async with connected("textcraft", options={"tier": "tiny"}) as (server, client):
        await client.socket.send("{")
        assert json.loads(await client.socket.recv())["data"]["code"] == "INVALID_JSON"
        for kind, data, code in (
            ("fly", {}, "UNKNOWN_TYPE"),
            ("step", {"text": "inventory"}, "VALIDATION_ERROR"),
            ("reset", {"seed": -1}, "VALIDATION_ERROR"),
            ("reset", {"config": {"no_such": 1}}, "EXECUTION_ERROR"),
        ):
            answer = await client.say(kind, **data)
            assert (answer["type"], answer["data"]["code"]) == ("error", code)
        assert (await client.say("reset"))["type"] == "observation"
        await client.socket.close()
    assert len(server) == 0


async def test_a_turn_that_cannot_be_scored_is_an_error_not_a_null_that_would_be_read_as_nothing() -> None:
    nobody = ("openai", {"model": "m", "base_url": f"http://127.0.0.1:{free_port()}/v1", "retries": 0})
    async with connected("turtle", user=nobody) as (_, client):
        await client.say("reset")
        answer = await client.say("step", message="action: was it dark?")
        assert (answer["type"], answer["data"]["code"]) == ("error", "EXECUTION_ERROR")
        assert "not scored" in answer["data"]["message"]
        assert (await client.say("reset"))["type"] == "observation"


async def test_what_is_served_describes_itself_as_openenv_s_servers_do() -> None:
    async with connected("textcraft", options={"tier": "tiny"}) as (_, client), httpx.AsyncClient() as http:
        schema = (await http.get(f"{client.address}/schema")).json()
        assert sorted(schema) == ["action", "observation", "state"]
        assert schema["action"]["required"] == ["message"]
        assert sorted((await http.get(f"{client.address}/metadata")).json()) == ["description", "name"]
