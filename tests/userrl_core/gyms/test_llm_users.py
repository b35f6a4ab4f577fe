"""The served users of IntentionGym and PersuadeGym: their prompts, temperatures, and retries of invalid replies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer
from tests.userrl_core.gyms.test_injections import schema_name
from userrl_core.gyms import make, tasks
from userrl_core.gyms.intention.gym import details_of
from userrl_core.interact import InteractCall
from userrl_core.served.client import close_clients


@pytest.fixture(autouse=True)
async def _no_open_connections() -> AsyncIterator[None]:
    yield
    await close_clients()


def replying(**by_schema: list[Any]) -> Any:
    """A brain with given answers by schema name, the last of which is repeated."""

    def brain(body: Body) -> Answer:
        answers = by_schema[schema_name(body)]
        return Answer(json.dumps(answers.pop(0) if len(answers) > 1 else answers[0]))

    return brain


def served(server: MockServer, gym: str, index: int = 0, retries: int = 0) -> Any:
    options = {"base_url": server.base_url, "retries": retries, "backoff": 0.001}
    instance = make(gym, tasks(gym, "train")[index], ("openai", options))
    instance.reset(seed=0)
    return instance


async def act(gym: Any, text: str) -> Any:
    return await gym.step(InteractCall("action", text))


def messages(body: Body) -> str:
    return "\n".join(str(m["content"]) for m in body["messages"])


async def test_intention_replies_at_temperature_0_7_and_judges_at_0_with_two_rows_in_the_ledger() -> None:
    with MockServer(
        replying(Response=[{"response": "By bike."}], Coverage=[{"analysis": "", "covered": [1]}])
    ) as server:
        gym = served(server, "intention")
        first = gym.remaining[0]
        result = await act(gym, "How?")
        requests = {schema_name(body): body for body in server.requests}
    assert (result.observation, result.reward) == ("By bike.", gym.config.base(first.importance))
    assert (requests["Response"]["temperature"], requests["Coverage"]["temperature"]) == (0.7, 0.0)
    assert sorted(call.role for call in gym.ledger) == ["judge", "user"]


async def test_intentions_judge_sees_the_remaining_details_and_only_those() -> None:
    coverage = [{"analysis": "", "covered": [2]}, {"analysis": "", "covered": []}]
    with MockServer(replying(Response=[{"response": "Yes."}], Coverage=coverage)) as server:
        gym = served(server, "intention")
        details = details_of(gym.task)
        await act(gym, "First?")
        await act(gym, "Second?")
        judging = [messages(body) for body in server.requests if schema_name(body) == "Coverage"]
        schemas = [b["response_format"] for b in server.requests if schema_name(b) == "Coverage"]
    assert all(detail.description in judging[0] for detail in details)
    assert details[1].description not in judging[1]
    allowed = [s["json_schema"]["schema"]["properties"]["covered"]["items"]["enum"] for s in schemas]
    assert allowed == [list(range(1, len(details) + 1)), list(range(1, len(details)))]


async def test_a_judgement_with_a_number_that_is_not_on_the_list_is_retried() -> None:
    coverage = [{"analysis": "", "covered": [99]}, {"analysis": "", "covered": [1, 1]}]
    with MockServer(replying(Response=[{"response": "Yes."}], Coverage=coverage)) as server:
        gym = served(server, "intention", retries=1)
        assert (await act(gym, "How?")).info["covered"] == 1


async def test_intentions_replying_prompt_holds_the_conversation() -> None:
    with MockServer(
        replying(Response=[{"response": "On Friday."}], Coverage=[{"analysis": "", "covered": []}])
    ) as server:
        gym = served(server, "intention")
        await act(gym, "On which day?")
        await act(gym, "At what hour?")
        last = [messages(body) for body in server.requests if schema_name(body) == "Response"][-1]
    assert last.index("On which day?") < last.index("On Friday.") < last.index("At what hour?")


def opinion(stance: str) -> dict[str, str]:
    return {"thought": "hm", "response": "I hear you.", "stance": stance}


@pytest.mark.parametrize("stance", ["Agree", "agree", " AGREE. ", "'Agree'"])
async def test_a_stance_in_another_case_is_the_same_stance(stance: str) -> None:
    with MockServer(replying(Opinion=[opinion(stance)])) as server:
        assert (await act(served(server, "persuade"), "Because.")).reward == pytest.approx(1 / 6)


async def test_an_unknown_stance_is_retried_and_then_a_judge_error() -> None:
    with MockServer(replying(Opinion=[opinion("Convinced"), opinion("Neutral")])) as server:
        assert (await act(served(server, "persuade", retries=1), "Because.")).reward == pytest.approx(0.5)
    with MockServer(replying(Opinion=[opinion("Convinced")])) as server, raises("judge.no_reply"):
        await act(served(server, "persuade", index=1, retries=1), "Because.")


async def test_persuades_prompt_holds_claim_argument_and_conversation_in_one_call_per_turn() -> None:
    with MockServer(replying(Opinion=[opinion("Agree"), opinion("Neutral")])) as server:
        gym = served(server, "persuade")
        await act(gym, "First reason.")
        await act(gym, "Second reason.")
        assert len(server.requests) == 2
        text = messages(server.requests[1])
    assert gym.task.payload["claim"] in text
    assert gym.task.payload["argument"] in text
    assert text.index("First reason.") < text.index("I hear you.") < text.index("Second reason.")
    assert "Your stance now: Agree" in text
    assert [call.role for call in gym.ledger] == ["judge", "judge"]


async def test_a_failed_turn_is_not_part_of_persuades_conversation() -> None:
    with MockServer(replying(Opinion=[{"bad": 1}, opinion("Agree")])) as server:
        gym = served(server, "persuade")
        with raises("judge.no_reply"):
            await act(gym, "Lost words.")
        await act(gym, "New words.")
        assert "Lost words." not in messages(server.requests[-1])
