"""How long a turn and a probe may take follows from how long a served model may take."""

from __future__ import annotations

import pytest

from tests.makers import raises
from tests.mock_server import Answer, MockServer
from userrl.evaluation.planned import _evaluated
from userrl.run.job import Actor, server_of
from userrl_core.served import health
from userrl_core.served.client import ChatServer, shown_address
from userrl_core.served.health import check_server, turn_seconds


def test_a_turn_has_four_times_the_time_of_the_slowest_users_reply() -> None:
    slow = ("openai", {"model": "m", "timeout": 300, "strategy": "react"})
    assert turn_seconds("rule") == 120
    assert turn_seconds(("openai", {"model": "m", "timeout": 5})) == 120
    assert turn_seconds({"tau": slow, "wish": "rule"}) == 1200
    assert turn_seconds("rule", ChatServer(timeout=50)) == 200


def test_users_that_are_no_server_have_the_ordinary_time() -> None:
    bad = ("openai", {"timeout": -1})  # refused where the user is made
    assert [turn_seconds(user) for user in (None, object(), {"wish": None}, ("rule", {}), bad)] == [120] * 5


def test_a_slow_server_may_take_its_own_time_for_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PROBE_TIMEOUT", 1e-6)
    with MockServer(lambda body: Answer("ok")) as server:
        check_server(ChatServer(base_url=server.base_url, timeout=60), "served model", tries=1)


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "Check the key in OPENAI_API_KEY."), (404, "Check the model's name and the address.")]
)
def test_a_refused_request_says_what_to_check(status: int, advice: str) -> None:
    body = b'{"error": {"message": "no"}}'
    with MockServer(lambda _: Answer(status=status, body=body)) as server, raises("model.server_down") as error:
        check_server(ChatServer(model="m", base_url=server.base_url), "served model", tries=1)
    assert f"served model m at {server.base_url} refuses a request" in str(error.value)
    assert str(error.value).endswith(advice)


def test_a_password_in_the_address_is_neither_stored_nor_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://ada:secret@127.0.0.1:1/v1?api_key=secret&api-version=2")
    actor = Actor(label="m", kind="served", path="m")
    assert _evaluated(actor).where == "http://127.0.0.1:1/v1?api-version=2"
    with raises("model.server_down", "127.0.0.1:1/v1") as error:
        check_server(server_of(actor), "served model", tries=1)
    assert "secret" not in str(error.value)
    assert shown_address("http://[::1") == "its address"
