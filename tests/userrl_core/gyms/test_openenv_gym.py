"""The gym of OpenEnv servers: every answer that may come, a typed environment, and hostile servers.

The fast tests put a program with prepared answers in the place of OpenEnv's client. The slow ones need openenv-core, which does
not fit beside our packages: $USERRL_OPENENV_PYTHON, or `.venv-openenv` of `lab.checks.openenv_check`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import Server, ServerConnection, serve

from lab.checks import openenv_check
from tests.makers import raises
from tests.places import ROOT
from tests.ports import free_port
from tests.userrl_core.gyms.prepared_program import Answers, Says, prepared_program
from userrl_core.gyms import make, other_python, tasks
from userrl_core.gyms.registry import unavailable
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_gym_openenv.gym import PYTHON

WORDS = {"properties": {"message": {"type": "string", "description": "what to say"}, "metadata": {}}, "type": "object"}
MOVES = {"properties": {"by": {"type": "integer", "maximum": 9}, "way": {"type": "string"}}, "required": ["by"]}
READY: dict[str, Any] = {"action": WORDS}
OPENED: dict[str, Any] = {"observation": {"text": "1 + 1?", "metadata": {}}, "reward": None, "done": False}
GOING_ON: dict[str, Any] = {"observation": {"text": "go on"}, "reward": 0.25, "done": False}
ENDED: dict[str, Any] = {"observation": {"text": "right"}, "reward": 0.75, "done": True}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
SAY = InteractCall("action", "2")


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    yield from prepared_program(PYTHON, tmp_path, monkeypatch)


def seeded(seed: int = 0, **reset: Any) -> Task:
    return Task("openenv", f"line_{seed}", "train", {"reset": {"seed": seed, **reset}}, tier="line")


async def test_an_episode_has_the_server_s_rewards_and_their_sum_as_score(answers: Answers) -> None:
    log = answers(OPENED, GOING_ON, {**GOING_ON, "reward": None}, ENDED, ready=READY)
    gym = make("openenv", seeded(3))
    assert await asyncio.to_thread(gym.reset, 1) == "1 + 1?"
    assert gym.help_for("action") == "what to say"
    results = [await gym.step(SAY) for _ in range(3)]
    assert [(result.reward, result.terminated) for result in results] == [(0.25, False), (0.0, False), (0.75, True)]
    assert (gym.score(), gym.succeeded) == (1.0, True)
    await gym.aclose()
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    assert requests[:2] == [{"session": 1, "reset": {"seed": 3}}, {"session": 1, "step": {"message": "2"}}]


async def test_an_action_that_the_schema_does_not_allow_is_not_sent(answers: Answers) -> None:
    log = answers(OPENED, GOING_ON, ready={"action": MOVES})
    gym = make("openenv", seeded())
    await asyncio.to_thread(gym.reset, 1)
    assert '"maximum": 9' in gym.help_for("action")
    for wrong in ("", "2", "[]", "{}", '{"by": "2"}', '{"by": 10}', '{"by": 1, "way": 3}', "[" * 100_000, "NaN"):
        result = await gym.step(InteractCall("action", wrong))
        assert (result.observation[:18], result.reward) == ("Error: no action (", 0.0), wrong
    assert (await gym.step(InteractCall("action", '{"by": 2}'))).reward == 0.25
    await gym.aclose()
    assert len(log.read_text().splitlines()) == 2


HOSTILE: dict[str, tuple[Any, str]] = {
    "no answer": (None, "did not answer within 0.5 seconds"),
    "an error": ({"error": "RuntimeError: Server error: no GPU"}, "failed: RuntimeError: Server error: no GPU"),
    "an exit": ("exit", "ended with status 9 (Killed: out of memory)"),
    "no JSON": ("'hello'", "sent what is not an answer"),
    "a list": ("'[1]'", "sent what is not an answer"),
    "a huge line": ("'x' * (33 << 20)", "sent an answer of more than 32 MB"),
    "half an answer": ('\'{"session": 1, "obs\'', "sent what is not an answer"),
    "reward too large": ({**GOING_ON, "reward": 10**400}, "gave the reward '1000000"),
    "all null": ({"observation": None, "reward": None, "done": None}, "said done: 'None', which is not true or false"),
    "observation is a text": ({**GOING_ON, "observation": "x"}, "sent an observation that is not an object"),
    "reward NaN": ({**GOING_ON, "reward": float("nan")}, "gave the reward 'nan', which is not a finite number"),
    "reward infinite": ({**GOING_ON, "reward": float("-inf")}, "gave the reward '-inf'"),
    "reward true": ({**GOING_ON, "reward": True}, "gave the reward 'True', which is not a finite number"),
    "reward text": ({**ENDED, "reward": "1.0"}, "gave the reward '1.0'"),
    "reward list": ({**ENDED, "reward": [1.0] * 99}, "gave the reward '[1.0, 1.0"),
    "no reward at all": ({**ENDED, "reward": None}, "ended the episode without any reward"),
    "done is a text": ({**ENDED, "done": "no"}, "said done: 'no', which is not true or false"),
    "done is missing": ({"observation": {"text": "x"}, "reward": 1.0}, "said done: 'None'"),
    "observation list": ({**GOING_ON, "observation": ["x"]}, "sent an observation that is not an object"),
    "observation missing": ({"reward": 1.0, "done": False}, "sent an observation that is not an object"),
    "no such field": ({**GOING_ON, "observation": {"words": "x"}}, "whose field 'text' is not a text"),
    "field of a number": ({**GOING_ON, "observation": {"text": 7}}, "whose field 'text' is not a text"),
}


@pytest.mark.parametrize("way", HOSTILE)
async def test_a_hostile_answer_is_one_sentence_and_a_null_reward(answers: Answers, way: str) -> None:
    sent, sentence = HOSTILE[way]
    answers(OPENED, sent, ready=READY)
    agent = Says("2", timeout=0.5 if sent is None else None)
    (trajectory,) = await run_episodes([seeded()], agent, horizon=3, gym_config={"openenv": {"text": "text"}})
    assert (trajectory.score, trajectory.admitted, [turn.reward for turn in trajectory.turns]) == (None, False, [None])
    assert sentence in (trajectory.reject_reason or "")
    assert "\n" not in (trajectory.reject_reason or "")


UNUSUAL: dict[str, tuple[Any, list[float], float]] = {
    "a negative reward": ({**ENDED, "reward": -0.5}, [-0.5], -0.5),
    "a reward above 1": ({**ENDED, "reward": 7.0}, [7.0], 7.0),
    "a text of 8 MB": ({**GOING_ON, "observation": {"text": "x" * (8 << 20)}}, [0.25, 0.75], 1.0),
    "half a character": ({**GOING_ON, "observation": {"text": "\x00\ud800"}}, [0.25, 0.75], 1.0),
}


@pytest.mark.parametrize("way", UNUSUAL)
async def test_an_unusual_answer_is_played_as_it_is(answers: Answers, way: str) -> None:
    sent, rewards, score = UNUSUAL[way]
    answers(OPENED, sent, ENDED, ready=READY)
    (trajectory,) = await run_episodes([seeded()], Says("2"), horizon=3, gym_config={"openenv": {"text": "text"}})
    assert ([turn.reward for turn in trajectory.turns], trajectory.score, trajectory.admitted) == (rewards, score, True)


async def test_an_episode_that_ends_at_its_reset_or_a_server_that_is_gone_is_said(answers: Answers) -> None:
    answers({**OPENED, "done": True}, ready=READY)
    gym = make("openenv", seeded())
    with raises("gym.server_failed", "ended the episode at its reset"):
        await asyncio.to_thread(gym.reset, 1)
    await gym.aclose()
    answers(ready={"error": "URLError: refused"})
    with raises("gym.program_failed", "OpenEnv's client of http://127.0.0.1:8001 failed: URLError: refused"):
        await asyncio.to_thread(make("openenv", seeded(), servers=("http://127.0.0.1:8001/",)).reset, 1)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (None, "has no JSON schema of an action"),
        ({"properties": []}, "has no JSON schema of an action"),
        ({"properties": {"by": {"type": "step"}}}, "has a wrong JSON schema of an action ('step' is not valid"),
        (
            {"$schema": DRAFT_4, "properties": {"by": {"exclusiveMinimum": True}}},
            "schema of an action (True is not of type",
        ),
        ({"properties": {"by": {"$ref": "http://10.0.0.1/a"}}}, "that refers to another file ('http://10.0.0.1/a')"),
        ({"properties": {"by": {"anyOf": [{"$dynamicRef": "a.json"}]}}}, "that refers to another file ('a.json')"),
        ({"properties": {"by": {"anyOf": [{"$ref": "#/$defs/Nope"}]}}}, "PointerToNowhere"),
        ({"foo": [7], "properties": {"by": {"$ref": "#/foo/0"}}}, "that cannot be used (TypeError: argument of"),
    ],
)
async def test_a_server_without_a_usable_schema_is_refused(answers: Answers, schema: Any, sentence: str) -> None:
    answers(OPENED, ready={"action": schema})
    gym = make("openenv", seeded())
    with raises("gym.server_failed", sentence):
        await asyncio.to_thread(gym.reset, 1)
        await gym.action('{"by": 1}')
    await gym.aclose()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"by": True}},
        {"$schema": DRAFT_4, "properties": {"by": {"exclusiveMinimum": 0}}},
        {"properties": {"by": {"$ref": "#/$defs/by"}}, "$defs": {"by": {"type": "integer"}}},
        {"properties": {"by": {}, "metadata": {}}, "required": ["metadata", "by"], "additionalProperties": False},
    ],
)
async def test_unusual_schemas_are_played(answers: Answers, schema: Any) -> None:
    answers(OPENED, ENDED, ready={"action": schema})
    (trajectory,) = await run_episodes([seeded()], Says('{"by": 1}'), horizon=2)
    assert (trajectory.score, trajectory.reject_reason) == (0.75, None)


async def test_replicas_take_turns(answers: Answers) -> None:
    answers(OPENED, ENDED, ready=READY)
    config = {"openenv": {"servers": ["http://127.0.0.1:1", "http://127.0.0.1:2"]}}
    trajectories = await run_episodes([seeded(seed) for seed in range(20)], Says("2"), horizon=2, gym_config=config)
    assert {trajectory.score for trajectory in trajectories} == {0.75}
    assert len(other_python._RUNNING) == 2


def test_tasks_are_resets_split_by_a_hash() -> None:
    by_split = {
        split: tasks("openenv", split, env="line", count=300, far=2) for split in ("train", "validation", "test")
    }
    everything = [task for split in by_split.values() for task in split]
    assert sorted(task.payload["reset"]["seed"] for task in everything) == list(range(300))
    assert {task.payload["reset"]["far"] for task in everything} == {2}
    assert min(len(split) for split in by_split.values()) > 5
    (task,) = (t for s in by_split for t in tasks("openenv", s, field="data_idx", first=7, count=1))
    assert (task.id, task.payload) == ("openenv_7", {"reset": {"data_idx": 7}})
    other = {task.id for s in by_split for task in tasks("openenv", s, env="line", count=300, far=3)}
    assert len(other | {task.id for task in everything}) == 600


async def test_without_the_python_or_a_player_a_sentence_says_what_to_do(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(OPENED, ready=READY)
    (trajectory,) = await run_episodes([seeded()], ScriptedPolicy(1.0), horizon=2)
    assert "Environment line has no scripted demonstrator. Name a model" in (trajectory.reject_reason or "")
    monkeypatch.delenv(PYTHON)
    assert unavailable("openenv") == (
        "Gym 'openenv' runs in a Python of its own: install 'openenv-core==0.3.0' in a venv and set "
        "$USERRL_OPENENV_PYTHON (it is not set)."
    )


REAL = os.environ.get(PYTHON) or str(ROOT / ".venv-openenv" / "bin" / "python")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """OpenEnv's own client."""
    if not Path(REAL).exists():
        pytest.skip("openenv-core is not installed: python -m lab.checks.openenv_check makes .venv-openenv")
    monkeypatch.setenv(PYTHON, REAL)
    monkeypatch.setattr(other_python, "_RUNNING", running := {})
    yield
    for started in running.values():
        started._process.kill()


@contextmanager
def listening(command: list[str], port: int, folder: Path) -> Iterator[str]:
    """Start a server with OpenEnv's Python, and give its address."""
    with subprocess.Popen([REAL, *command], cwd=folder) as server:
        for _ in range(6000):
            with socket.socket() as probe:
                if server.poll() is not None or probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        try:
            assert server.poll() is None, "the server ended before it was asked"
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture
def line(real: None) -> Iterator[str]:
    """The typed environment, served by OpenEnv itself."""
    port = free_port()
    here = Path(__file__)
    with listening([str(here.with_name("openenv_server.py")), str(port)], port, here.parent) as address:
        yield address


@pytest.mark.slow
@pytest.mark.usefixtures("real")
async def test_the_example_of_openenv_s_package_is_played_with_its_own_rewards(tmp_path: Path) -> None:
    made = [REAL, "-m", "openenv.cli", "init", "echo", "--output-dir", str(tmp_path)]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    port = free_port()
    command = ["-m", "uvicorn", "server.app:app", "--port", str(port), "--log-level", "warning"]
    with listening(command, port, tmp_path / "echo") as address:
        gym = make("openenv", seeded(1), servers=(address,), text="echoed_message")
        assert await asyncio.to_thread(gym.reset, 1) == "Echo environment ready!"
        assert gym.help_for("action") == "Message to echo back"
        results = [await gym.step(InteractCall("action", text)) for text in ("hello", "", "twelve chars")]
        await gym.aclose()
    assert [(result.observation, result.reward) for result in results] == [
        ("hello", 0.5),
        ("", 0.0),
        ("twelve chars", pytest.approx(1.2)),
    ]


@pytest.mark.slow
async def test_a_typed_environment_is_played_by_many_at_once_with_its_own_rewards(line: str) -> None:
    gym = make("openenv", seeded(1, far=1), servers=(line,))
    assert await asyncio.to_thread(gym.reset, 1) == '{"value": 0, "target": 3}'
    assert (await gym.step(InteractCall("action", '{"by": 99}'))).observation.startswith(
        "Error: no action (99 is greater"
    )
    results = [await gym.step(InteractCall("action", text)) for text in ('{"by": 1, "way": "run"}', '{"by": 2}')]
    assert [(r.observation, r.reward, r.terminated) for r in results] == [
        ('{"value": 1, "target": 3}', 0.1, False),
        ('{"value": 3, "target": 3}', 1.0, True),
    ]
    await gym.aclose()
    config = {"openenv": {"servers": [line]}}
    chosen = [seeded(seed) for seed in range(30)]
    trajectories = await run_episodes(chosen, Says('{"by": 1}'), horizon=9, concurrency=30, gym_config=config)
    assert [(t.score, len(t.turns)) for t in trajectories] == [(float(s % 7 < 4), min(s % 7 + 1, 4)) for s in range(30)]


OPENING = '{"data": {"observation": {"text": "1 + 1?"}, "done": false}}'
SERVERS = {
    "error": ('{"type": "error", "data": {"message": "no GPU", "code": "EXECUTION_ERROR"}}', "Server error: no GPU"),
    "not json": ("hello", "the server's answer cannot be read: JSONDecodeError"),
    "a page": ("<!DOCTYPE html><title>502</title>", "the server's answer cannot be read: JSONDecodeError"),
    "half a message": ('{"data": {"observation": {"te', "the server's answer cannot be read: JSONDecodeError"),
    "list": ("[1]", "the server's answer cannot be read: AttributeError"),
    "no data": ("{}", "sent an observation whose field 'text' is not a text"),
    "closes": ("close", "ConnectionClosed"),
    "cuts the line": ("cut", "ConnectionClosed"),
    "huge": ("x" * (33 << 20), "ConnectionClosed"),
    "nan": ('{"data": {"observation": {"text": "x"}, "reward": NaN, "done": false}}', "gave the reward 'nan'"),
    "text reward": ('{"data": {"observation": {"text": "x"}, "reward": "1", "done": true}}', "gave the reward '1'"),
    "true reward": ('{"data": {"observation": {"text": "x"}, "reward": true, "done": true}}', "gave the reward 'True'"),
    "done number": ('{"data": {"observation": {"text": "x"}, "reward": 1, "done": 1}}', "said done: '1'"),
    "no reward": ('{"data": {"observation": {"text": "x"}, "done": true}}', "ended the episode without any reward"),
    "silent": ("", "did not answer within 2 seconds"),
}
"""What a server answers to a step."""
ENTRANCES = {
    "a page for a schema": ("/schema", HTTPStatus.OK, "<html>", "got no schema of an action from http://127.0.0.1:"),
    "no action in it": ("/schema", HTTPStatus.OK, "{}", "/schema: KeyError: 'action'"),
    "a redirect of the schema": ("/schema", HTTPStatus.FOUND, "", "/schema: HTTPError: HTTP Error 302"),
    "an error for a schema": ("/schema", HTTPStatus.BAD_GATEWAY, "", "/schema: HTTPError: HTTP Error 502"),
    "a page for a connection": ("/ws", HTTPStatus.OK, "<html>", "HTTP 200"),
    "a redirect of the connection": ("/ws", HTTPStatus.FOUND, "", "redirects"),
    "a close of the connection": ("", HTTPStatus.OK, "", "as one does that has no session left: ConnectionClosedOK"),
}
"""What a server answers to the first requests: path, status, body, sentence. No path: every request is answered, and then the
connection is closed."""


def played_on(server: Server, **config: Any) -> Iterator[dict[str, Any]]:
    """Serve in a thread, and give the gym's configuration."""
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        yield {"openenv": {"servers": [address], "text": "text", **config}}
        for started in other_python._RUNNING.values():
            started._process.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("way", SERVERS)
async def test_a_hostile_server_gives_a_null_reward_and_one_sentence(way: str) -> None:
    sent, sentence = SERVERS[way]

    def played(connection: ServerConnection) -> None:
        for number, _ in enumerate(connection):
            if number == 0:
                connection.send(OPENING)
            elif sent == "cut":
                connection.socket.shutdown(socket.SHUT_RDWR)
            elif sent == "close":
                return
            elif sent:
                connection.send(sent)

    def schema(connection: ServerConnection, request: Any) -> Any:
        return connection.respond(HTTPStatus.OK, json.dumps(READY)) if request.path == "/schema" else None

    for config in played_on(serve(played, "127.0.0.1", 0, process_request=schema, max_size=None)):
        agent = Says("2", timeout=2.0 if way == "silent" else None)
        (trajectory,) = await run_episodes([seeded()], agent, horizon=3, gym_config=config)
    assert (trajectory.score, trajectory.admitted, [turn.reward for turn in trajectory.turns]) == (None, False, [None])
    assert sentence in (trajectory.reject_reason or "")
    assert "\n" not in (trajectory.reject_reason or "")


@pytest.mark.slow
@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("way", ENTRANCES)
async def test_a_server_that_does_not_let_the_client_in_is_one_sentence_and_asked_nowhere_else(way: str) -> None:
    path, status, body, sentence = ENTRANCES[way]
    asked: list[str] = []

    def first(connection: ServerConnection, request: Any) -> Any:
        asked.append(request.path)
        response = connection.respond(*((status, body) if request.path == path else (HTTPStatus.OK, json.dumps(READY))))
        if status == HTTPStatus.FOUND and request.path == path:
            response.headers["Location"] = "/elsewhere"
        return response if request.path in (path, "/schema") else None

    for config in played_on(serve(lambda _: None, "127.0.0.1", 0, process_request=first)):
        (trajectory,) = await run_episodes([seeded()], Says("2"), horizon=3, gym_config=config)
    assert (trajectory.score, trajectory.admitted, trajectory.turns) == (None, False, [])
    assert sentence in (trajectory.reject_reason or "")
    assert "\n" not in (trajectory.reject_reason or "")
    assert "/elsewhere" not in asked


@pytest.mark.slow
@pytest.mark.usefixtures("real")
async def test_our_served_gym_comes_back_with_the_rewards_that_it_has_in_process() -> None:
    played = [await openenv_check.in_process("wish", task) for task in list(tasks("wish", "test"))[:2]]
    replies = await openenv_check.over_openenv("wish", [messages for messages, _ in played])
    assert replies == [expected for _, expected in played]
