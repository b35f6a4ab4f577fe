"""TauGym's served customer: its strategies, what of them the agent sees, and when it may end the conversation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer, prompt_text
from userrl_core.gyms import make, tasks
from userrl_core.gyms.tau.stopping import STOP, may_stop
from userrl_core.interact import InteractCall

STOPPED = "The customer has ended the conversation."


async def spoken(replies: list[Any], *messages: str, strategy: str = "plain") -> tuple[list[str], list[Body], Any]:
    """What the agent sees for each of its messages, the requests, and the gym. A reply that is no text is sent as JSON."""
    queue = [reply if isinstance(reply, str) else json.dumps(reply) for reply in replies]
    said: Callable[[Body], Answer] = lambda body: Answer(queue.pop(0))  # noqa: E731
    with MockServer(said) as server:
        options = {"base_url": server.base_url, "model": "m", "retries": 0, "strategy": strategy}
        gym: Any = make("tau", tasks("tau", "train", domain="outfitter")[0], ("openai", options))
        gym.reset(seed=0)
        results = [await gym.step(InteractCall("action", message)) for message in messages]
        assert queue == []
        return [result.observation for result in results], list(server.requests), gym


async def test_the_thought_of_a_reasoning_customer_reaches_neither_the_agent_nor_the_next_prompt() -> None:
    replies = [{"thought": "SECRET one", "reply": "I am Ann."}, {"thought": "SECRET two", "reply": f"Bye. {STOP}"}]
    seen, requests, gym = await spoken(replies, "Who is it?", "It is done.", strategy="react")
    assert seen == ["I am Ann.", "Bye."]
    assert gym.done
    assert "SECRET" not in prompt_text(requests[-1])
    assert "Think before every reply" in prompt_text(requests[0])


async def test_a_reply_that_does_not_pass_is_made_again_up_to_three_times() -> None:
    bad, good = {"reason": "invents", "good": False}, {"reason": "", "good": True}
    seen, requests, _ = await spoken(["one", bad, "two", good], "Who is it?", strategy="verify")
    assert (seen, len(requests)) == (["two"], 4)
    seen, requests, _ = await spoken(["one", bad, "two", bad, "three"], "Who is it?", strategy="verify")
    assert (seen, len(requests)) == (["three"], 5)
    instruction = tasks("tau", "train", domain="outfitter")[0].payload["instruction"]
    assert instruction in prompt_text(requests[1])


async def test_a_reflecting_customer_is_told_what_was_wrong_with_its_reply() -> None:
    bad = {"reason": "gives up the refund", "good": False}
    seen, requests, _ = await spoken(["Never mind.", bad, "I want my refund."], "Is that all?", strategy="reflection")
    assert seen == ["I want my refund."]
    assert "gives up the refund" in prompt_text(requests[-1])


async def test_a_stop_at_a_question_is_refused_and_the_customer_answers() -> None:
    seen, requests, gym = await spoken([STOP, "Yes, do it."], "Shall I cancel order #W7001?")
    assert (seen, gym.done) == (["Yes, do it."], False)
    assert "The agent has not answered yet" in prompt_text(requests[-1])


async def test_a_customer_that_will_not_stop_stopping_goes_on_without_the_token() -> None:
    seen, _, gym = await spoken([STOP, STOP, f"Bye {STOP}"], "Which order is it?")
    assert (seen, gym.done) == (["Bye"], False)
    seen, _, gym = await spoken([STOP, STOP, STOP], "One moment, I will look it up.")
    assert (seen, gym.done) == (["Please go on."], False)


@pytest.mark.parametrize(
    "message",
    [
        "Your order is cancelled.",
        "It is cancelled. Is there anything else?",
        "I am sorry, I cannot cancel it. Do you want it sent elsewhere?",
        "That is not possible.",
    ],
)
async def test_a_stop_after_an_answer_or_a_refusal_ends_the_conversation(message: str) -> None:
    seen, requests, gym = await spoken([STOP], message)
    assert (seen, len(requests), gym.done) == ([STOPPED], 1, True)


@given(st.text(max_size=40))
def test_a_question_without_a_refusal_is_never_the_end(text: str) -> None:
    if not any(word in text.lower() for word in ("else", "further", "not", "n't", "un", "im", "longer")):
        assert not may_stop(f"{text} Which one?")


async def test_an_unknown_strategy_is_refused_with_those_there_are() -> None:
    with raises("user.bad_option", "'wild'"):
        make("tau", tasks("tau", "train")[0], ("openai", {"base_url": "http://127.0.0.1:1", "strategy": "wild"}))
