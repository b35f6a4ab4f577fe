"""The client of AgentGym's environment servers: recorded exchanges replayed, failures, sessions that are always closed."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.gigabyte import gzipped_gigabyte, little_memory
from tests.makers import raises
from tests.ports import free_port
from tests.published import published
from tests.userrl_core.gyms.recorded import RecordedServer, exchanges
from userrl_core.errors import UserError
from userrl_core.gyms import make, tasks
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_core.served.bounded import MAX_BYTES
from userrl_gym_agentgym.client import Session, open_session
from userrl_gym_agentgym.protocols import PROTOCOLS


def item(env: str, number: int = 0) -> Task:
    return Task("agentgym", f"{env}_{number}", "train", {"env": env, "item": number})


@contextmanager
def scripted_server(answers: dict[str, list[Any]]) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A server that gives each path's answers in turn, the last one again and again.

    None: no answer at all. A tuple: status, body, and the body's encoding where it has one.
    """
    asked: list[tuple[str, Any]] = []
    gone = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append((self.path, json.loads(raw) if raw else None))
            left = answers[self.path]
            answer = left.pop(0) if len(left) > 1 else left[0]
            if answer is None:
                gone.wait(30.0)
                return
            status, body, *packed = answer if isinstance(answer, tuple) else (200, json.dumps(answer).encode())
            self.send_response(status)
            for encoding in packed:
                self.send_header("content-encoding", encoding)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # whoever asked has read enough
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        gone.set()
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("env", ["textcraft", "babyai", "sciworld"])
def test_the_recorded_exchanges_with_a_real_server_are_replayed_word_for_word(env: str) -> None:
    """Every create, reset, step, observation and close of the record, through the client, in its order."""
    recorded = exchanges(published("agentgym") / "transcripts" / f"{env}.txt")
    protocol = PROTOCOLS[env]
    replayed = 0
    with RecordedServer(recorded) as server:
        sessions: dict[int, Session] = {}
        for method, path, body, text, status in recorded:
            number = (body or {}).get("id", 0)
            if path == "/create" and not body:
                sessions[0] = open_session(protocol, [server.address], 0)
            elif number != 0 or path not in ("/reset", "/step", "/observation?id=0") or status != 200:
                continue
            elif path == "/reset" and "data_idx" in body:
                if "error" in json.loads(text):
                    with pytest.raises(UserError, match="list index out of range"):
                        sessions[0].reset(body["data_idx"])
                else:
                    opening = sessions[0].reset(body["data_idx"])
                    assert opening.endswith(json.loads(text)["observation"])
            elif path == "/step" and "error" in text:
                with pytest.raises(UserError, match=json.loads(text)["error"]):
                    sessions[0].step(body["action"])
            elif path == "/step":
                assert sessions[0].step(body["action"]) == json.loads(text)
            elif method == "GET" and "error" not in text:
                assert sessions[0].observe() == json.loads(text)
            replayed += 1
        sessions[0].close()
        sessions[0].close()
        assert server.asked[-1] == ("POST", "/close", {"id": 0})
        assert [asked for asked in server.asked if asked[1] == "/close"] == [("POST", "/close", {"id": 0})]
        assert server.unknown == []
    assert replayed >= 7


async def test_sciworld_s_wrong_focus_ends_without_success_and_with_no_less_than_0() -> None:
    recorded = exchanges(published("agentgym") / "transcripts" / "sciworld.txt")
    with RecordedServer(recorded) as server:
        gym = make("agentgym", item("sciworld"), servers=(server.address,))
        assert gym.reset(seed=0).startswith("Your task is to boil water.")
        assert (await gym.step(InteractCall("action", "Thought: let me see.\nAction: look around"))).reward == 0.0
        last = await gym.step(InteractCall("action", "focus on air"))
        assert (last.reward, last.terminated, last.info["success"], gym.score()) == (0.0, True, False, 0.0)
        await gym.aclose()


@pytest.mark.parametrize(
    ("env", "created", "opening", "answers", "rewards", "success"),
    [
        ("textcraft", {"id": 3}, {"observation": "o"}, [{"reward": 0, "done": False}, {"reward": 1, "done": True}], [0, 1], True),
        # A late success is not said to be done there, and its score would go on changing.
        ("babyai", {"id": 3}, {"observation": "o"}, [{"reward": 0, "score": 0.4, "done": False}], [0.4], True),
        ("babyai", {"id": 3}, {"observation": "o"}, [{"reward": 0, "score": 0, "done": True}], [0], False),
        (
            "sciworld",
            {"id": 3},
            {"task_description": "t", "observation": "o"},
            [{"reward": 25, "score": 25, "done": False}, {"reward": -125, "score": -100, "done": True}],
            [0.25, -0.25],
            False,
        ),
        ("sciworld", {"id": 3}, {"observation": "o"}, [{"reward": 100, "score": 100, "done": True}], [1.0], True),
        ("searchqa", 3, "question", [{"reward": 0, "done": False}, {"reward": 0.1, "done": True}], [0, 0.1], False),
        (
            "webarena",
            {"env_idx": 3},
            {"observation": "o", "sites": ["shop"], "object": {"intent": "find it"}},
            [
                {"reward": 0.5, "terminated": False, "truncated": False},
                {"reward": 1.0, "terminated": True, "truncated": False},
            ],
            [0.0, 1.0],
            True,
        ),
    ],
)  # fmt: skip
async def test_each_environment_s_answers_become_rewards_that_add_up_to_its_score(
    env: str, created: Any, opening: Any, answers: list[dict[str, Any]], rewards: list[float], success: bool
) -> None:
    steps = [{"observation": "seen", **answer} for answer in answers]
    routes = {"/create": [created], "/reset": [opening], "/step": steps, "/close": [True]}
    with scripted_server(routes) as (address, asked):
        gym = make("agentgym", item(env, 7), servers=(address,))
        gym.reset(seed=0)
        results = [await gym.step(InteractCall("action", "go")) for _ in rewards]
        await gym.aclose()
    assert [result.reward for result in results] == pytest.approx(rewards)
    assert (results[-1].terminated, results[-1].info["success"]) == (True, success)
    assert gym.score() == pytest.approx(sum(rewards))
    name, number = PROTOCOLS[env].session, PROTOCOLS[env].item
    assert asked[1][1] == {name: 3, number: 7} | ({"seed": 0} if env == "webarena" else {})
    assert asked[-1] == ("/close", {name: 3})


@pytest.mark.parametrize(
    ("env", "text", "sent"),
    [
        ("textcraft", "Thought: wood.\nAction: get 2 oak log.\nThen more", "get 2 oak log"),
        ("textcraft", "craft 4 stick using 1 oak planks, 1 log", "craft 4 stick using 1 oak planks, 1 log"),
        ("babyai", "Thought: left.\nAction: turn left", "turn left"),
        ("sciworld", "Action: wait\nAction: look around", "look around"),
        ("searchqa", "<search>Action: films</search>", "<search>Action: films</search>"),
        ("webarena", "```click [12]```", "```click [12]```"),
    ],
)
def test_the_action_is_read_as_each_environment_s_own_client_reads_it(env: str, text: str, sent: str) -> None:
    assert PROTOCOLS[env].read(text) == sent


async def test_more_than_one_action_in_a_message_is_no_step() -> None:
    routes = {"/create": [{"id": 1}], "/reset": [{"observation": "o"}], "/close": [True]}
    with scripted_server(routes) as (address, asked):
        gym = make("agentgym", item("textcraft"), servers=(address,))
        gym.reset(seed=0)
        result = await gym.step(InteractCall("action", "Action: get 1 log\nAction: inventory"))
        assert (result.observation, result.reward) == ("Only one action is possible in a message.", 0.0)
        await gym.aclose()
    assert [path for path, _ in asked] == ["/create", "/reset", "/close"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "did not answer"),
        ({"error": "The id 3 is not valid."}, "The id 3 is not valid."),
        ((500, b"Internal Server Error"), "answered with status 500"),
        ((200, b"<html>"), "did not answer with JSON"),
        ((200, gzipped_gigabyte(), "gzip"), "/step sent a compressed reply, though a plain one was asked for."),
        ((500, gzipped_gigabyte(), "gzip"), "/step sent a compressed reply, though a plain one was asked for."),
        ((200, b" " * (MAX_BYTES + 1)), "/step sent a reply that is longer than 32 MB."),
    ],
)
async def test_a_step_that_fails_is_null_sent_once_and_its_session_closed(answer: Any, said: str) -> None:
    routes = {"/create": [{"id": 3}], "/reset": [{"observation": RECIPES}], "/step": [answer], "/close": [True]}
    with scripted_server(routes) as (address, asked):
        config = {"agentgym": {"servers": [address], "timeout": 0.5}}
        with little_memory():
            (trajectory,) = await run_episodes([item("textcraft")], ScriptedPolicy(1.0), horizon=5, gym_config=config)
    assert (trajectory.score, trajectory.admitted, trajectory.rewards) == (None, False, [None])
    assert said in str(trajectory.reject_reason)
    assert [path for path, _ in asked] == ["/create", "/reset", "/step", "/close"]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (b'{"observation": "Won.", "reward": 1e999, "done": true}', "'reward' is 'inf', not a finite number"),
        (b'{"observation": "Won.", "reward": NaN, "done": true}', "'reward' is 'nan', not a finite number"),
        (b'{"observation": "Won.", "reward": 1%s, "done": true}' % (b"0" * 400), "not a finite number"),
        (b'{"observation": "Won.", "reward": true, "done": true}', "'reward' is 'True', not a finite number"),
        (b'{"observation": "Won.", "reward": "1", "done": true}', "'reward' is '1', not a finite number"),
        (b'{"observation": "Won.", "done": true}', "'reward' is 'None', not a finite number"),
        (b'{"observation": "Won.", "reward": 1, "done": "false"}', "'done' is 'false', not true or false"),
        (b'{"reward": 1, "done": true}', "has no observation"),
        (b'{"observation": ' + b"[" * 100_000, "did not answer with JSON"),
    ],
)
async def test_what_a_server_does_not_say_is_no_score(step: bytes, said: str) -> None:
    routes = {"/create": [{"id": 3}], "/reset": [{"observation": RECIPES}], "/step": [(200, step)], "/close": [True]}
    with scripted_server(routes) as (address, _):
        config = {"agentgym": {"servers": [address]}}
        (trajectory,) = await run_episodes([item("textcraft")], ScriptedPolicy(1.0), horizon=5, gym_config=config)
    assert (trajectory.score, trajectory.admitted, trajectory.rewards) == (None, False, [None])
    assert said in str(trajectory.reject_reason)


@pytest.mark.parametrize("answer", [None, 7, [1], True])
def test_a_reset_without_a_text_is_the_server_s_failure(answer: Any) -> None:
    routes = {"/create": [{"id": 3}], "/reset": [(200, json.dumps(answer).encode())], "/close": [True]}
    with scripted_server(routes) as (address, _), raises("gym.server_failed", "neither text nor an object"):
        make("agentgym", item("textcraft"), servers=(address,)).reset(seed=0)


RECIPES = "Crafting commands:\ncraft 4 oak planks using 1 oak log\n\nGoal: craft oak planks."


async def test_a_server_that_cannot_make_a_session_is_passed_over_for_the_next() -> None:
    routes = {
        "/create": [{"id": 3}],
        "/reset": [{"observation": RECIPES}],
        "/step": [{"observation": "Got 1 oak log", "reward": 0, "done": False}, {"observation": "", "reward": 1, "done": True}],
        "/close": [True],
    }  # fmt: skip
    with scripted_server(routes) as (address, _):
        config = {"agentgym": {"servers": [f"http://127.0.0.1:{free_port()}", address], "retries": 0}}
        (trajectory,) = await run_episodes([item("textcraft")], ScriptedPolicy(1.0), horizon=5, gym_config=config)
    assert (trajectory.score, trajectory.stop_reason) == (1.0, "success")


def test_without_any_server_the_reason_says_where_none_answered() -> None:
    port = free_port()
    with raises("gym.server_failed", f"http://127.0.0.1:{port}/create did not answer"):
        open_session(PROTOCOLS["babyai"], [f"http://127.0.0.1:{port}"], 0, retries=0)


def test_a_session_that_was_never_reset_is_reset_before_it_is_closed() -> None:
    """AgentGym's servers answer false to a close before the first reset, and keep the session."""
    routes = {"/create": [{"id": 2}], "/reset": [{"observation": "o"}], "/close": [True]}
    with scripted_server(routes) as (address, asked):
        open_session(PROTOCOLS["babyai"], [address], 0).close()
    assert [path for path, _ in asked] == ["/create", "/reset", "/close"]


def test_items_are_the_published_ids_and_what_there_is_not_is_refused() -> None:
    ids = {task.id for split in ("train", "validation", "test") for task in tasks("agentgym", split, env="webarena")}
    assert ids == {f"webarena_{number}" for number in range(812)}
    assert len(tasks("agentgym", "test", env="babyai", first=40, count=100)) < 100
    with raises("task.bad_option", "'textcraf'", "did you mean 'textcraft'"):
        tasks("agentgym", "train", env="textcraf")
    with raises("task.bad_option", "543"):
        tasks("agentgym", "train", env="textcraft", count=600)
