"""A person as the agent at the terminal: what they may type, and that leaving gives no reward."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.makers import raises
from userrl_core.gyms.human_user import Console
from userrl_core.interact import InteractCall, parse_text
from userrl_people.human_policy import HumanPolicy, readable


def act(screen: list[str], lines: Sequence[str], choices: tuple[str, ...]) -> InteractCall | None:
    """Let a person type these lines, and leave after the last."""
    left = list(lines)

    def ask(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    class AnyGym:
        @staticmethod
        def choices() -> tuple[str, ...]:
            return choices

        @staticmethod
        def ready() -> dict[str, list[str]]:
            return {}

    session = HumanPolicy(Console(ask, screen.append)).session(AnyGym(), 0)  # type: ignore[arg-type]
    reply = asyncio.run(session.act([{"role": "user", "content": "the opening"}]))
    return parse_text(reply.text).call


ALL = ("action", "search", "answer")


@pytest.mark.parametrize(
    ("typed", "choices", "call"),
    [
        (["action: Where to?"], ALL, InteractCall("action", "Where to?")),
        (["se: flights: Rome"], ALL, InteractCall("search", "flights: Rome")),
        (["hello", "a: x", "an: F3"], ALL, InteractCall("answer", "F3")),
        (["Which colour: red or blue?"], ("action",), InteractCall("action", "Which colour: red or blue?")),
        (["", "ok"], ("action",), InteractCall("action", "ok")),
        (["[search] hotel in Rome"], ALL, InteractCall("search", "hotel in Rome")),
        (["[Answer]: F3"], ALL, InteractCall("answer", "F3")),
    ],
)
def test_a_person_acts_by_typing_a_choice(typed: list[str], choices: tuple[str, ...], call: InteractCall) -> None:
    screen: list[str] = []
    assert act(screen, typed, choices) == call
    assert "the opening" in "\n".join(screen)


@pytest.mark.parametrize("typed", [[], ["quit"], ["/quit"]])
def test_a_person_may_leave(typed: list[str]) -> None:
    with raises("people.left"):
        act([], typed, ALL)


def test_a_search_result_is_words_and_not_json() -> None:
    line = '{"id": "H1", "name": "Oak", "cost": 66, "tags": ["quiet", "view"], "service": {"spa": null, "late_bus": 4}}'
    assert readable(f"1 option for hotel:\n{line}") == (
        "1 option for hotel:\nH1  Oak  66\n      tags quiet, view; service late bus 4"
    )
    assert readable("{not json") == "{not json"
