"""``userrl serve-tools``: REST routes and MCP tools over the same functions, a database of its own for every session."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client import Client

from flows.server.front_door import LOOPBACK, FrontDoor, served
from tests.ports import free_port
from tests.published import published
from userrl_core.gyms.tau.stores import open_database
from userrl_core.gyms.tau.tasks import domain_tasks, load_domain
from userrl_core.gyms.tau.tools import Domain, ToolError
from userrl_core.records import Task
from userrl_serving.tool_server import ToolServer, app_of

NOWHERE = Path("/nowhere")


@contextmanager
def running(
    domain: str, root: Path = NOWHERE, token: str | None = None, **limits: Any
) -> Iterator[tuple[ToolServer, str]]:
    tasks, folder = domain_tasks(domain, root)
    server = ToolServer(load_domain(domain, folder), folder, tasks, **limits)
    port = free_port()
    with served(FrontDoor(app_of(server), hosts=LOOPBACK, token=token), "127.0.0.1", port):
        yield server, f"http://127.0.0.1:{port}"


def http() -> httpx.Client:
    return httpx.Client(trust_env=False, timeout=60.0)


def begun(client: httpx.Client, address: str, task: str | None = None) -> str:
    return str(client.post(f"{address}/sessions", json={"task": task}).json()["session"])


def in_process(domain: Domain, folder: str | None, task: Task) -> list[str]:
    """What the gold calls give on a database in memory, errors with their sentence."""
    database = open_database(domain, folder, domain.base, "memory")
    return [said(domain, database, action) for action in task.payload["actions"]]


def said(domain: Domain, database: Any, action: dict[str, Any]) -> str:
    try:
        return domain.call(database, action["name"], action["kwargs"])
    except ToolError as error:
        return str(error)


def same(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except json.JSONDecodeError:
        return one == other


async def over_mcp(address: str, session: str, task: Task) -> list[str]:
    async with Client(f"{address}/sessions/{session}/mcp") as client:
        results = [await client.call_tool(a["name"], a["kwargs"]) for a in task.payload["actions"]]
    return [result.content[0].text for result in results]


def over_rest(client: httpx.Client, address: str, session: str, task: Task) -> list[str]:
    texts = []
    for action in task.payload["actions"]:
        answer = client.post(f"{address}/sessions/{session}/tools/{action['name']}", json=action["kwargs"]).json()
        texts.append(answer.get("result", answer.get("error")))
    return texts


async def test_rest_and_mcp_give_what_the_functions_give_and_the_verdict_is_that_of_the_gold_writes() -> None:
    with running("outfitter") as (server, address), http() as client:
        task = max(server.tasks[:60], key=lambda task: len(task.payload["actions"]))
        rest, mcp = begun(client, address, task.id), begun(client, address, task.id)
        assert client.get(f"{address}/sessions/{rest}/verdict").json() == {"writes": False, "database": False}
        expected = in_process(server.domain, None, task)
        assert over_rest(client, address, rest, task) == expected
        assert await over_mcp(address, mcp, task) == expected
        for session in (rest, mcp):
            assert client.get(f"{address}/sessions/{session}/verdict").json() == {"writes": True, "database": True}
        async with Client(f"{address}/sessions/{mcp}/mcp") as session_client:
            listed = (await session_client.list_tools()).tools
        assert [tool.name for tool in listed] == [schema["function"]["name"] for schema in server.domain.schemas]


async def test_what_a_tool_refuses_is_a_sentence_over_both_and_changes_nothing() -> None:
    with running("outfitter") as (server, address), http() as client:
        session = begun(client, address)
        refused = {"order_id": "#nowhere", "reason": "no longer needed"}
        tool = f"{address}/sessions/{session}/tools/cancel_pending_order"
        assert client.post(tool, json=refused).json() == {"error": "order not found"}
        assert client.post(tool, content=b"[").json() == {"error": "the arguments of a tool call are a JSON object"}
        assert "do not fit" in client.post(tool, json={"order_id": 7}).json()["error"]
        async with Client(f"{address}/sessions/{session}/mcp") as mcp:
            result = await mcp.call_tool("cancel_pending_order", refused)
        assert (result.is_error, result.content[0].text) == (True, "order not found")
        assert server.find(session).database.changes() == {}


def test_sessions_are_closed_when_asked_and_when_idle_and_there_are_no_more_than_allowed() -> None:
    with running("bikes", total=2) as (server, address), http() as client:
        one, two = begun(client, address), begun(client, address)
        assert client.post(f"{address}/sessions", json={}).status_code == 503
        assert client.delete(f"{address}/sessions/{one}").json() == {"closed": True}
        gone = client.post(f"{address}/sessions/{one}/tools/think", json={"thought": "?"})
        assert (gone.status_code, gone.json()["detail"]) == (
            404,
            "There is no such session; begin one with POST /sessions.",
        )
        assert client.post(f"{address}/sessions", json={"task": "none"}).status_code == 404
        assert client.get(f"{address}/sessions/{two}/verdict").status_code == 404
        server.idle = 0.0
        asyncio.run(server.expire())
        assert client.get(f"{address}/health").json()["sessions"] == 0


def test_other_sites_and_those_without_the_token_are_turned_away_from_both() -> None:
    with running("bikes", token="t") as (_, address), http() as client:
        for path in ("/sessions", "/sessions/x/mcp"):
            assert client.post(address + path, json={}).status_code == 401
            known = {"Authorization": "Bearer t"}
            assert (
                client.post(address + path, json={}, headers={**known, "Origin": "http://evil.test"}).status_code == 403
            )
            assert client.post(address + path, json={}, headers={**known, "Host": "evil.test"}).status_code == 421


@pytest.mark.parametrize("episodes", [10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.full])])
async def test_episodes_at_once_never_see_each_others_writes(episodes: int) -> None:
    with running("outfitter") as (server, address):
        customer = next(iter(server.domain.base["users"]))
        fields = ("address1", "address2", "city", "state", "country", "zip")
        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(trust_env=False, timeout=60.0, limits=limits) as client:

            async def episode(number: int) -> tuple[str, str]:
                session = (await client.post(f"{address}/sessions", json={})).json()["session"]
                tools = f"{address}/sessions/{session}/tools"
                await client.post(
                    f"{tools}/modify_user_address",
                    json={"user_id": customer, **dict.fromkeys(fields, f"home {number}")},
                )
                await asyncio.sleep(0)
                details = await client.post(f"{tools}/get_user_details", json={"user_id": customer})
                return f"home {number}", json.loads(details.json()["result"])["address"]["city"]

            seen = await asyncio.gather(*map(episode, range(episodes)))
        assert all(wrote == read for wrote, read in seen)
        assert len(server) == episodes


@pytest.mark.slow
async def test_five_hundred_gold_calls_of_each_published_domain_are_answered_alike_in_process_over_rest_and_over_mcp() -> (
    None
):
    root = published("tau-bench")
    for name in ("retail", "airline"):
        with running(name, root) as (server, address), http() as client:
            calls = 0
            for task in server.tasks:
                if calls >= 500:
                    break
                rest, mcp = begun(client, address, task.id), begun(client, address, task.id)
                expected = in_process(server.domain, server.folder, task)
                answers = over_rest(client, address, rest, task), await over_mcp(address, mcp, task)
                for one in answers:
                    assert all(map(same, one, expected)), task.id
                assert client.get(f"{address}/sessions/{rest}/verdict").json() == {"writes": True, "database": True}
                client.delete(f"{address}/sessions/{rest}")
                client.delete(f"{address}/sessions/{mcp}")
                calls += len(expected)
            assert calls >= 150


@pytest.mark.slow
def test_the_command_serves_a_domain_until_it_is_interrupted() -> None:
    port = free_port()
    command = [sys.executable, "-m", "flows.cli.main", "serve-tools", "outfitter", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ, text=True)
    try:
        client = httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False)
        health = client.get(f"http://127.0.0.1:{port}/health", timeout=60.0).json()
        assert health == {"status": "ok", "domain": "outfitter", "sessions": 0}
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        assert out.startswith("outfitter: 16 tools, 1200 tasks at http://127.0.0.1:")
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("named", ["option", "variable"])
def test_the_option_names_the_same_root_of_published_data_as_the_variable(named: str) -> None:
    root, port = str(published("tau-bench").parent), free_port()
    command = [sys.executable, "-m", "flows.cli.main", "serve-tools", "retail", "--port", str(port)]
    options, variable = (["--data", root], "/nowhere") if named == "option" else ([], root)
    variables = {"USERRL_PUBLISHED_DATA": variable}
    process = subprocess.Popen(command + options, stdout=subprocess.PIPE, env=os.environ | variables, text=True)
    try:
        client = httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False)
        health = client.get(f"http://127.0.0.1:{port}/health", timeout=60.0).json()
        assert health == {"status": "ok", "domain": "retail", "sessions": 0}
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("prepared")
def test_where_the_root_of_published_data_has_no_tau_bench_the_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flows.cli.main", "serve-tools", "retail", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{tmp_path / 'tau-bench'} has no folder retail. Import the published data with" in done.stderr
