"""A gym behind HTTP behaves as AgentGym's servers do, but says what was not scored."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from flows.serving.gym_server import GymServer, app_of, read_action
from userrl_core.errors import ConfigError
from userrl_core.interact import InteractCall, render_call


def client(**more: Any) -> TestClient:
    return TestClient(app_of(GymServer("travel", "train", options={"tier": "tiny"}, **more)))


def test_a_session_is_played_to_its_end_over_http() -> None:
    http = client()
    number = http.post("/create").json()["id"]
    first = http.post("/reset", json={"id": number, "data_idx": 0, "seed": 1}).json()
    assert first == {"id": number, "observation": "book a hotel by price and meal", "reward": 0.0, "done": False}
    assert http.get("/observation", params={"id": number}).json() == "book a hotel by price and meal"
    asked = http.post("/step", json={"id": number, "action": "action: price?"}).json()
    assert (asked["observation"], asked["reward"], asked["done"]) == ("high", 0.1, False)
    said = render_call(InteractCall("answer", "H6"))
    last = http.post("/step", json={"id": number, "action": said}).json()
    assert (last["reward"], last["done"]) == (0.8, True)
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
    assert "create one first" in client().post("/reset", json={"id": 99}).json()["error"]
    assert client().post("/step", json={"id": "x"}).status_code == 422


def test_the_longest_unused_session_makes_room() -> None:
    http = client(most=2)
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
    with pytest.raises(ConfigError, match="travel"):
        app_of(GymServer("travl"))


def test_plain_actions_are_read_with_any_case() -> None:
    assert read_action(" Answer :  H6 ") == InteractCall("answer", "H6")
    assert isinstance(read_action("H6"), str)
