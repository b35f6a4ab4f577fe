"""A gym behind HTTP behaves as AgentGym's servers do, but says what was not scored."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.makers import raises
from userrl_core.interact import InteractCall, render_call
from userrl_serving.gym_server import GymServer, app_of, read_action


def client(**more: Any) -> TestClient:
    return TestClient(app_of(GymServer("travel", "train", options={"tier": "tiny"}, **more)))


def test_a_session_is_played_to_its_end_over_http() -> None:
    http = client()
    number = http.post("/create").json()["id"]
    first = http.post("/reset", json={"id": number, "data_idx": 0, "seed": 1}).json()
    assert first == {
        "id": number,
        "observation": "book a hotel by price and meal",
        "reward": 0.0,
        "done": False,
        "score": 0.0,
        "metric": 0.0,
        "success": False,
    }
    assert http.get("/observation", params={"id": number}).json() == "book a hotel by price and meal"
    asked = http.post("/step", json={"id": number, "action": "action: price?"}).json()
    assert (asked["observation"], asked["reward"], asked["done"]) == ("high", 0.1, False)
    said = render_call(InteractCall("answer", "H6"))
    last = http.post("/step", json={"id": number, "action": said}).json()
    assert (last["reward"], last["done"], last["score"], last["success"]) == (0.8, True, pytest.approx(0.9), False)
    assert "not running" in http.post("/step", json={"id": number, "action": said}).json()["error"]
    assert http.post("/close", json={"id": number}).json() is True
    assert http.post("/close", json={"id": number}).json() is False


def test_what_is_no_call_earns_nothing_and_ends_nothing() -> None:
    http = client()
    number = http.post("/create").json()["id"]
    http.post("/reset", json={"id": number})
    answer = http.post("/step", json={"id": number, "action": "hello there"}).json()
    assert (answer["reward"], answer["done"]) == (0.0, False)
    assert "tool call" in answer["observation"]


def test_an_unknown_session_is_an_error_in_words() -> None:
    assert "Create one first" in client().post("/reset", json={"id": 99}).json()["error"]
    assert client().post("/step", json={"id": "x"}).status_code == 422


def test_the_longest_unused_session_makes_room() -> None:
    http = client(per_client=2)
    first, second, third = (http.post("/create").json()["id"] for _ in range(3))
    assert "error" in http.post("/reset", json={"id": first}).json()
    assert "error" not in http.post("/reset", json={"id": second}).json()
    assert "error" not in http.post("/reset", json={"id": third}).json()


def test_a_user_model_that_is_down_gives_null_and_no_zero() -> None:
    dead = ("openai", {"model": "m", "base_url": "http://127.0.0.1:9/v1", "retries": 0})
    http = client(user=dead)
    number = http.post("/create").json()["id"]
    http.post("/reset", json={"id": number})
    answer = http.post("/step", json={"id": number, "action": "action: price?"}).json()
    assert answer["reward"] is None
    assert answer["done"]
    assert "not scored" in answer["error"]


def test_a_gym_that_does_not_exist_is_refused_at_the_start() -> None:
    with raises("gym.not_installed"):
        app_of(GymServer("travl"))


def test_plain_actions_are_read_with_any_case() -> None:
    assert read_action(" Answer :  H6 ") == InteractCall("answer", "H6")
    assert isinstance(read_action("H6"), str)


def test_with_one_choice_the_content_alone_is_an_action() -> None:
    assert read_action("get 2 log", ("action",)) == InteractCall("action", "get 2 log")
    assert read_action("action: get 2 log", ("action",)) == InteractCall("action", "get 2 log")


def test_what_can_be_done_is_told_and_the_gym_is_configured_per_session() -> None:
    http = client()
    plain = http.post("/create").json()["id"]
    doubled = http.post("/create", json={"config": {"reward_scale": 2.0}}).json()["id"]
    for number in (plain, doubled):
        http.post("/reset", json={"id": number, "seed": 1})
    rewards = [
        http.post("/step", json={"id": number, "action": "action: price?"}).json()["reward"]
        for number in (plain, doubled)
    ]
    assert rewards == [0.1, 0.2]
    assert set(http.get("/available_actions", params={"id": plain}).json()) == {"action", "search", "answer"}
    assert "no option 'reward_scal'" in http.post("/create", json={"config": {"reward_scal": 2.0}}).json()["error"]
    assert "Create one first" in http.get("/available_actions", params={"id": 5}).json()["error"]


def test_health_and_metrics_count_what_was_done() -> None:
    http = client()
    first, second = (http.post("/create").json()["id"] for _ in range(2))
    http.post("/reset", json={"id": first})
    http.post("/step", json={"id": first, "action": "action: price?"})
    http.post("/close", json={"id": second})
    assert http.get("/health").json() == {"status": "ok", "gym": "travel", "sessions": 1}
    told = http.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert {
        'userrl_gym_sessions{gym="travel"} 1',
        'userrl_gym_created_total{gym="travel"} 2',
        'userrl_gym_closed_total{gym="travel"} 1',
        'userrl_gym_steps_total{gym="travel"} 1',
        'userrl_gym_step_seconds_count{gym="travel"} 1',
    } <= set(told.text.splitlines())


async def test_an_idle_session_expires_and_its_number_is_never_given_again() -> None:
    server = GymServer("travel", "train", options={"tier": "tiny"}, idle=-1.0)
    number = (await server.create("me"))["id"]
    await server.expire()
    assert len(server) == 0
    assert 'expired_total{gym="travel"} 1' in server.metrics()
    again = GymServer("travel", "train", options={"tier": "tiny"})
    assert (await again.create("me"))["id"] > number
