"""A model trained with the released prompts earns here what it earned there: `answer` in persuade, numbers as content."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from userrl_core.gyms import make, tasks
from userrl_core.gyms.persuade.gym import STANCES, ListenerResponse
from userrl_core.interact import InteractCall, parse_text, parse_tool_calls
from userrl_core.records import Message, PolicyReply, Task, Trajectory
from userrl_core.rollout import run_episodes


class Recited:
    """A model that says the given messages one after the other."""

    name = "recited"

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)

    def session(self, gym: Any, seed: int) -> Recited:
        return self

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        text = self.messages.pop(0)
        return PolicyReply(text)


def said(choice: str, content: str) -> str:
    """A message in the released format; content: JSON."""
    arguments = f'{{"choice": "{choice}", "content": {content}}}'
    return f'<tool_call>\n{{"name": "interact_with_env", "arguments": {arguments}}}\n</tool_call>'


def play(task: Task, *messages: str, user: Any = "rule", **config: Any) -> Trajectory:
    policy = Recited(*messages)
    played = asyncio.run(
        run_episodes([task], policy, horizon=len(messages), user=user, gym_config={task.gym: config})  # type: ignore[arg-type]
    )
    return played[0]


def test_arguments_given_as_answers_in_persuade_earn_what_actions_earn() -> None:
    task = next(task for task in tasks("persuade", "train"))
    arguments = [rebuttal["text"].replace('"', "'") for rebuttal in task.payload["rebuttals"]][:4]
    by_choice = {
        choice: play(task, *[said(choice, f'"{argument}"') for argument in arguments])
        for choice in ("answer", "action")
    }
    assert by_choice["answer"].rewards == by_choice["action"].rewards
    assert sum(reward or 0 for reward in by_choice["answer"].rewards) > 0
    assert [turn.choice for turn in by_choice["answer"].turns] == ["answer"] * len(by_choice["answer"].turns)
    assert make("persuade").choices() == ("action",)


class Swaying:
    """A user whose stances are given by level."""

    def __init__(self, *levels: int) -> None:
        self.levels = list(levels)

    async def respond(self, argument: str, stance: str) -> ListenerResponse:
        return ListenerResponse("Hm.", STANCES[self.levels.pop(0)])


@pytest.mark.parametrize(("paid", "sixths"), [("previous", [3, 0, 2, 0, 1]), ("best", [3, 0, 0, 0, 0])])
def test_levels_are_paid_against_the_previous_stance_or_once(paid: str, sixths: list[int]) -> None:
    levels = [3, 1, 3, 2, 3]
    gym = make("persuade", None, Swaying(*levels), paid=paid)
    gym.reset(seed=0)
    rewards = [asyncio.run(gym.step(InteractCall("answer", "Because."))).reward for _ in levels]
    assert rewards == pytest.approx([level / 6 for level in sixths])


@pytest.mark.parametrize(("content", "text"), [("22", "22"), ("22.0", "22.0"), ("-0.5", "-0.5")])
def test_a_number_as_content_is_its_text(content: str, text: str) -> None:
    assert parse_text(said("answer", content)).call == InteractCall("answer", text)
    call = {"function": {"name": "interact_with_env", "arguments": f'{{"choice": "answer", "content": {content}}}'}}
    assert parse_tool_calls(None, [call]).call == InteractCall("answer", text)


@pytest.mark.parametrize("content", ["true", "null", "[1]", '{"a": 1}', "1e999", "NaN"])
def test_what_is_neither_text_nor_a_number_stays_a_format_error(content: str) -> None:
    assert parse_text(said("answer", content)).call is None


def test_a_function_solved_with_a_bare_number_earns_the_point() -> None:
    task = next(task for task in tasks("function", "train") if float(task.payload["expected"]).is_integer())
    trajectory = play(task, said("search", '"test"'), said("answer", str(int(task.payload["expected"]))))
    assert (trajectory.rewards, trajectory.stop_reason) == ([0.0, 1.0], "success")
