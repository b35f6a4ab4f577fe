"""What every server of ours refuses before its application sees it: over real sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import typer
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from flows.cli.looking.view import view
from flows.cli.serve import app as serve_commands
from flows.server import front_door
from flows.server.front_door import FrontDoor, guarded, served
from tests.makers import raises
from tests.ports import free_port
from userrl.worker.relay import relay
from userrl_serving.gym_server import GymServer, app_of

commands = typer.Typer()
commands.add_typer(serve_commands)
commands.command("view")(view)


SERVE_USER = ["serve-user", "--model", "some"]


async def echo(scope, receive, send):  # type: ignore[no-untyped-def]
    """Says how long the body was."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(len(body["body"])).encode()})


@contextlib.contextmanager
def open_door(door: FrontDoor) -> Iterator[str]:
    port = free_port()
    with served(door, "127.0.0.1", port):
        yield f"http://127.0.0.1:{port}"


def test_own_names_own_pages_and_small_bodies_pass() -> None:
    with open_door(FrontDoor(echo)) as url, httpx.Client(trust_env=False) as client:
        assert client.post(url, content=b"x" * 1000).text == "1000"
        assert client.post(url, content=iter([b"ab", b"cd"])).text == "4"
        assert client.get(url, headers={"Origin": url}).text == "0"
        for headers, status in [
            ({"Host": "evil.example"}, 421),
            ({"Host": ""}, 421),
            ({"Host": "["}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": url.replace("http", "ftp")}, 403),
        ]:
            assert client.post(url, headers=headers).status_code == status, headers


def test_a_page_of_another_origin_may_link_here_and_load_nothing() -> None:
    navigation = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    with open_door(FrontDoor(echo)) as url, httpx.Client(trust_env=False) as client:
        for headers, status in [
            ({}, 200),
            ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 200),
            ({"Sec-Fetch-Site": "none", **navigation}, 200),
            ({"Sec-Fetch-Site": "cross-site", **navigation}, 200),
            ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
            ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
            ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "embed"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
        ]:
            assert client.get(url, headers=headers).status_code == status, headers


def test_every_answer_forbids_frames_objects_and_foreign_scripts_but_not_a_page_s_own_workers() -> None:
    with open_door(FrontDoor(echo)) as url, httpx.Client(trust_env=False) as client:
        policy = client.get(url).headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["frame-ancestors"] == "'none'"
    assert rules["object-src"] == "'none'"
    assert rules["script-src"].split() == ["'self'", "'unsafe-inline'", "'unsafe-eval'"]
    assert rules["worker-src"].split() == ["'self'", "blob:"]


def test_a_body_is_limited_whether_its_length_is_said_or_not() -> None:
    with open_door(FrontDoor(echo, body=1000)) as url, httpx.Client(trust_env=False) as client:
        assert client.post(url, content=b"x" * 1001).status_code == 413
        with contextlib.suppress(httpx.TransportError):  # it may still be sending when it is refused
            assert client.post(url, content=iter([b"x" * 600] * 400)).status_code == 413
        assert client.post(url, content=b"x" * 1000).text == "1000"


def test_headers_are_limited() -> None:
    with open_door(FrontDoor(echo)) as url, httpx.Client(trust_env=False) as client:
        with contextlib.suppress(httpx.TransportError):
            assert client.get(url, headers={"X": "y" * 2**20}).status_code == 400
        assert client.get(url, headers={"X": "y" * 20_000}).status_code == 431
        assert client.get(url, headers={"X": "y" * 15_000}).status_code == 200
        assert client.get(url).text == "0"


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with (
        open_door(FrontDoor(echo, seconds=0.3)) as url,
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as slow,
    ):
        slow.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nabc")
        slow.settimeout(30)
        assert b" 408 " in slow.recv(4096)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHos",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=["headers", "body", "idle"],
)
def test_three_hundred_slow_clients_keep_nobody_out_and_are_gone_in_time(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(front_door, "HEADER_SECONDS", 3.0)
    with open_door(FrontDoor(echo, seconds=3.0)) as url, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        slow = [stack.enter_context(socket.create_connection(address)) for _ in range(300)]
        for connection in slow:
            with contextlib.suppress(OSError):
                connection.sendall(sent)
        for _ in range(3):
            assert httpx.get(url, trust_env=False, timeout=30).text == "0"
        deadline = time.monotonic() + 60
        for connection in slow:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            with contextlib.suppress(ConnectionError):
                while connection.recv(4096):
                    pass


@pytest.mark.parametrize(
    "command",
    [["serve-gym", "travel"], ["serve-tools", "outfitter"], [*SERVE_USER, "--command", "touch ran {port}"], ["view"]],
    ids=lambda command: command[0],
)  # fmt: skip
def test_a_taken_port_is_refused_before_an_address_is_told_or_a_model_started(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(commands, [*command, "--port", port])
    assert "http" not in result.output
    assert f"cannot listen on 127.0.0.1 port {port}" in f"{result.output} {result.exception}"
    assert not (tmp_path / "ran").exists()


def test_off_this_machine_a_token_is_wanted_and_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("argument.missing"):
        guarded(echo, "0.0.0.0", [], tmp_path)
    assert guarded(echo, "127.0.0.1", [], tmp_path).token is None
    door = guarded(echo, "0.0.0.0", ["gpu-host.example"], tmp_path)
    token = (tmp_path / "serve.token").read_text().strip()
    assert (door.token, (tmp_path / "serve.token").stat().st_mode & 0o777) == (token, 0o600)
    assert token not in repr(door)
    with open_door(door) as url, httpx.Client(trust_env=False, headers={"Host": "gpu-host.example"}) as client:
        assert client.get(url).status_code == 401
        assert client.get(url, headers={"Authorization": "Bearer guess"}).status_code == 401
        assert client.get(url, headers={"Authorization": f"Bearer {token}"}).status_code == 200
    monkeypatch.setenv("USERRL_SERVE_TOKEN", "chosen")
    assert guarded(echo, "10.0.0.1", [], tmp_path).token == "chosen"


def test_a_gym_s_session_cannot_be_made_by_a_page_nor_pushed_out_by_another_client() -> None:
    gym = GymServer("travel", "train", options={"tier": "tiny"}, per_client=2, total=3)
    with open_door(FrontDoor(app_of(gym))) as url, httpx.Client(trust_env=False, base_url=url) as client:
        assert client.post("/create", headers={"Origin": "http://evil.example"}).status_code == 403
        first = client.post("/create").json()["id"]
    assert gym.observe(first) == ""


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/reset", '{"id": NaN}', 400),
        ("/reset", '{"id": 1e999}', 400),
        ("/reset", '{"id": ' + "1" * 5000 + "}", 400),
        ("/reset", "[" * 100_000, 400),
        ("/reset", '{"id": "\\ud800"}', 400),
        ("/create", '{"config": {"\\ud800": 1}}', 400),
        ("/create", '{"config": {"step_penalty": ' + "1" * 400 + "}}", 200),
        ("/reset", '{"id": 0, "data_idx": ' + "1" * 400 + "}", 200),
    ],
)
def test_numbers_that_are_none_and_text_that_is_no_utf_8_end_in_an_answer(path: str, body: str, status: int) -> None:
    gym = GymServer("travel", "train", options={"tier": "tiny"})
    with TestClient(app_of(gym)) as client:
        answer = client.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()


async def test_sessions_are_capped_per_client_and_in_all() -> None:
    gym = GymServer("travel", "train", options={"tier": "tiny"}, per_client=2, total=3)
    mine = (await gym.create("a"))["id"]
    for _ in range(5):
        await gym.create("b")
    assert gym.observe(mine) == ""
    with raises("server.full"):
        await gym.create("c")
    gym.idle = 0.0
    assert "id" in await gym.create("c")


def test_a_served_model_is_reached_through_the_door_alone_and_told_no_token() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def model(scope, receive, send):  # type: ignore[no-untyped-def]
        if scope["type"] != "lifespan":
            seen.append(dict(scope["headers"]))
        await echo(scope, receive, send)

    with open_door(FrontDoor(model)) as inner, open_door(FrontDoor(relay(inner), token="t")) as url:
        asked = {"Authorization": "Bearer t", "Cookie": "c", "Content-Type": "application/json"}
        answer = httpx.post(f"{url}/v1/chat?x=1", headers=asked, content=b'{"a": 1}', trust_env=False)
        assert (answer.status_code, answer.text) == (200, "8")
        assert not {b"authorization", b"cookie"} & set(seen[0])
        assert httpx.post(f"{url}/v1/chat", trust_env=False).status_code == 401
    assert threading.active_count() < 50


def test_a_model_s_server_that_is_away_is_a_503() -> None:
    with open_door(FrontDoor(relay(f"http://127.0.0.1:{free_port()}"))) as url:
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 503
