"""A served model under a gym's native protocol: plain words reach the user, tools are the gym's own."""

from __future__ import annotations

from typing import Any

from tests.mock_server import Answer, Body, MockServer
from userrl_core.gyms import tasks
from userrl_core.policies.native import NativePolicy
from userrl_core.records import Task, Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer


def called(name: str, arguments: str, number: int) -> Answer:
    call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return Answer("", [call], "tool_calls")


async def play(brain: Any, task: Task) -> tuple[Trajectory, list[Body]]:
    with MockServer(brain) as server:
        policy = NativePolicy(ChatServer(model="m", base_url=server.base_url, tool_choice="required"))
        [trajectory] = await run_episodes([task], policy, horizon=3, prompt_style="native")
        return trajectory, server.requests


async def test_plain_words_are_an_action_and_a_tool_of_the_desk_is_its_call() -> None:
    def agent(body: Body) -> Answer:
        number = len(body["messages"])
        return Answer("Who are you, please?") if number == 2 else called("list_bikes", '{"kind": "road"}', number)

    task = tasks("tau", "train")[0]
    trajectory, requests = await play(agent, task)
    assert [turn.choice for turn in trajectory.turns] == ["action", "answer", "answer"]
    assert trajectory.turns[0].content == "Who are you, please?"
    assert trajectory.turns[1].content == '{"name": "list_bikes", "arguments": {"kind": "road"}}'
    offered = {tool["function"]["name"] for tool in requests[0]["tools"]}
    assert "interact_with_env" not in offered
    assert len(offered) > 3
    assert "tool_choice" not in requests[0]
    assert "interact_with_env" not in str(requests[0]["messages"])


async def test_travel_has_a_tool_for_search_and_one_for_answer_and_an_unknown_one_is_a_format_error() -> None:
    def agent(body: Body) -> Answer:
        number = len(body["messages"])
        return called("search", '{"content": "hotel"}', number) if number == 2 else called("fly", "{}", number)

    trajectory, requests = await play(agent, tasks("travel", "train")[0])
    assert [tool["function"]["name"] for tool in requests[0]["tools"]] == ["search", "answer"]
    assert [turn.choice for turn in trajectory.turns] == ["search", None]
    assert trajectory.stop_reason == "format"


async def test_arguments_nested_without_end_are_a_format_error_and_no_failure_of_ours() -> None:
    """Otherwise a model could keep a conversation out of its training."""
    trajectory, _ = await play(lambda body: called("search", '{"content":' * 100_000, 1), tasks("travel", "train")[0])
    assert trajectory.admitted
    assert trajectory.rewards[0] == 0.0
