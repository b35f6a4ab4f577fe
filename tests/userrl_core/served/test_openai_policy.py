"""A served model as the agent, over HTTP with faults: distillation completes, and no fault is scored."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.makers import raises
from tests.mock_server import (
    FAULTS,
    Answer,
    Body,
    DemonstratorAgent,
    MockServer,
    both,
    modest_user,
    tool_call,
)
from userrl_core.distill import select_top_k
from userrl_core.gyms import tasks
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.records import Trajectory
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer, close_clients
from warehouse import TurnLog, open_warehouse

TWENTY_PERCENT = dict.fromkeys(FAULTS, 0.2 / len(FAULTS))


@pytest.fixture(autouse=True)
async def _no_open_connections() -> AsyncIterator[None]:
    yield
    await close_clients()


def server_at(server: MockServer, **fields: Any) -> ChatServer:
    """With a short time-out where the server lets some requests hang, else with one that no good answer reaches."""
    timeout = 1.0 if "timeout" in server.faults else 60.0
    return ChatServer(base_url=server.base_url, **{"backoff": 0.001, "timeout": timeout, "retries": 12, **fields})


def outcomes(trajectories: list[Trajectory]) -> list[tuple[Any, ...]]:
    """The part of trajectories that must not depend on faults."""
    return [(t.task.key, t.rewards, t.score, t.stop_reason, [turn.message for turn in t.turns]) for t in trajectories]


@pytest.mark.parametrize("tools", [True, False])
async def test_distillation_with_a_fault_rate_of_20_percent_equals_distillation_without_faults(tools: bool) -> None:
    train_tasks = [
        *tasks("travel", "train", tier="tiny")[:12],
        *tasks("intention", "train")[:4],
        *tasks("persuade", "train")[:4],
    ]
    brain = DemonstratorAgent(train_tasks)
    with MockServer(brain, tools=tools) as faultless:
        expected = await run_episodes(train_tasks, OpenAIPolicy(server_at(faultless)), horizon=12)
    with MockServer(brain, faults=TWENTY_PERCENT, seed=1, tools=tools) as server:
        trajectories = await run_episodes(train_tasks, OpenAIPolicy(server_at(server)), horizon=12, concurrency=16)
        share = len(server.injected) / len(server.requests)
    assert 0.1 < share < 0.3
    assert outcomes(trajectories) == outcomes(expected)
    assert all(t.admitted and t.stop_reason == "success" for t in trajectories)
    assert sum(call.attempts - 1 for t in trajectories for turn in t.turns for call in turn.model_calls) > 5
    selection = select_top_k(trajectories, 9)
    assert len(selection.kept) == 9


async def test_without_retries_a_fault_rejects_the_trajectory_and_changes_no_reward() -> None:
    train_tasks = tasks("travel", "train", tier="tiny")[:40]
    brain = DemonstratorAgent(train_tasks)
    with MockServer(brain) as faultless:
        expected = {
            t.task.key: t for t in await run_episodes(train_tasks, OpenAIPolicy(server_at(faultless)), horizon=12)
        }
    # Without time-outs, so that a busy machine cannot add faults of its own.
    quick_faults = [kind for kind in FAULTS if kind != "timeout"]
    with MockServer(brain, faults=dict.fromkeys(quick_faults, 0.01), seed=5) as server:
        trajectories = await run_episodes(
            train_tasks, OpenAIPolicy(server_at(server, retries=0, timeout=30.0)), horizon=12
        )
        faults = list(server.injected)
    rejected = [t for t in trajectories if not t.admitted]
    assert 0 < len(rejected) == len(faults) < len(trajectories)
    for t in rejected:
        assert (t.score, t.stop_reason, t.return_sum) == (None, "error", None)
        assert str(t.reject_reason).startswith("policy: gpt-4o gave no usable reply")
        assert t.rewards == expected[t.task.key].rewards[: len(t.turns)]
    assert any(t.admitted and t.stop_reason == "success" for t in trajectories)


async def test_the_api_messages_are_append_only_and_every_tool_call_has_a_reply_with_its_id() -> None:
    train_tasks = tasks("persuade", "train")[:1]
    with MockServer(DemonstratorAgent(train_tasks)) as server:
        await run_episodes(train_tasks, OpenAIPolicy(server_at(server)), horizon=12)
        sent = [body["messages"] for body in server.requests]
    for earlier, later in itertools.pairwise(sent):
        assert later[: len(earlier)] == earlier
    for index, message in enumerate(sent[-1]):
        if message["role"] == "assistant":
            assert sent[-1][index + 1]["role"] == "tool"
            assert sent[-1][index + 1]["tool_call_id"] == message["tool_calls"][0]["id"]


async def test_only_the_first_of_several_calls_is_executed_and_the_others_have_a_reply() -> None:
    def brain(body: Body) -> Answer:
        return Answer("", [tool_call("action", "Which region or city?", 1), tool_call("action", "Who comes along?", 2)])

    with MockServer(brain) as server:
        [t] = await run_episodes(tasks("intention", "train")[:1], OpenAIPolicy(server_at(server)), horizon=2)
        messages = server.requests[-1]["messages"]
    assert [turn.content for turn in t.turns] == ["Which region or city?"] * 2
    assert [m.get("tool_call_id") for m in messages if m["role"] == "tool"] == ["call_1", "call_2"]


async def test_after_a_refusal_of_tools_the_tool_is_described_in_the_prompt_and_after_three_in_a_row_from_the_start() -> (
    None
):
    train_tasks = tasks("intention", "train")[:5]
    with MockServer(DemonstratorAgent(train_tasks), tools=False) as server:
        policy = OpenAIPolicy(server_at(server))
        trajectories = await run_episodes(train_tasks, policy, horizon=12, concurrency=1)
        refused = [body for body in server.requests if "tools" in body]
        systems = {body["messages"][0]["content"] for body in server.requests if "tools" not in body}
    assert len(refused) == 3
    assert all("<tool_call>" in system and '"enum": ["action"]' in system for system in systems)
    assert all(t.stop_reason == "success" for t in trajectories)
    assert [call.error for call in trajectories[0].turns[0].model_calls] == ["HTTP400", None]


async def test_one_bad_request_costs_one_conversation_its_tools_and_no_other() -> None:
    train_tasks = tasks("intention", "train")[:4]
    brain, bad = DemonstratorAgent(train_tasks), [Answer(body=b'{"error": {"message": "bad"}}', status=400)]
    with MockServer(lambda body: bad.pop() if bad else brain(body)) as server:
        policy = OpenAIPolicy(server_at(server))
        trajectories = await run_episodes(train_tasks, policy, horizon=12, concurrency=1)
        first = [body for body in server.requests if len(body["messages"]) <= 2]
    assert ["tools" in body for body in first] == [True, False, True, True, True]
    assert all(t.stop_reason == "success" for t in trajectories)


async def test_every_request_to_a_server_is_in_the_ledger_also_where_no_reply_came() -> None:
    [task] = tasks("persuade", "train")[:1]
    brain, replies = DemonstratorAgent([task]), itertools.count()

    def dies(body: Body) -> Answer:
        return brain(body) if next(replies) < 2 else Answer(body=b"{", status=500)

    with MockServer(dies) as server:
        [t] = await run_episodes([task], OpenAIPolicy(server_at(server, retries=2)), horizon=12)
        sent = len(server.requests)
    assert (len(t.turns), t.score, sent) == (2, None, 5)
    assert [(call.attempts, call.error) for call in t.unfinished_calls] == [(3, "HTTP500")]
    assert sum(call.attempts for turn in t.turns for call in turn.model_calls) == 2


async def test_a_conversation_that_takes_too_long_has_its_open_call_in_the_ledger() -> None:
    with MockServer(modest_user, faults={"timeout": 1.0}) as server:
        policy = OpenAIPolicy(server_at(server, timeout=60.0))
        [t] = await run_episodes(tasks("intention", "train")[:1], policy, horizon=2, episode_timeout=1.0)
    assert (t.admitted, [(call.attempts, call.error) for call in t.unfinished_calls]) == (False, [(1, "Cancelled")])


async def test_the_open_calls_of_a_batch_that_is_cancelled_are_in_the_ledger(tmp_path: Path) -> None:
    log, loop = TurnLog.open(tmp_path, "r1"), asyncio.get_running_loop()
    numbers, all_asked, ended = itertools.count(1), asyncio.Event(), threading.Event()

    def never_answers(body: Body) -> Answer:
        if next(numbers) == 3:
            loop.call_soon_threadsafe(all_asked.set)
        ended.wait(60)
        return Answer("Too late.")

    with MockServer(never_answers) as server:
        policy = OpenAIPolicy(server_at(server))
        batch = asyncio.create_task(run_episodes(tasks("intention", "train")[:3], policy, horizon=2, sink=log))
        await all_asked.wait()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        ended.set()
    log.close()
    with open_warehouse(tmp_path) as warehouse:
        calls = warehouse.sql("SELECT error, attempts, prompt_tokens > 0 FROM model_calls").fetchall()
        reasons = warehouse.sql("SELECT DISTINCT admitted, reject_reason FROM trajectories").fetchall()
    assert calls == [("Cancelled", 1, True)] * 3
    assert reasons == [(False, "policy: the conversation was cancelled")]


@pytest.mark.parametrize(
    ("arguments", "sent_back"),
    [
        ('{"choice": "action", ', '{"unreadable": "{\\"choice\\": \\"action\\", "}'),
        (None, "{}"),
        ({"choice": "action", "content": "x"}, '{"choice": "action", "content": "x"}'),
        ('{"choice":"action"}', '{"choice":"action"}'),
    ],
)
async def test_a_call_is_sent_back_with_an_id_and_arguments_that_every_server_can_parse(
    arguments: Any, sent_back: str
) -> None:
    call = {"type": "function", "function": {"name": "interact_with_env", "arguments": arguments}}
    with MockServer(lambda body: Answer("", [call], "tool_calls")) as server:
        policy = OpenAIPolicy(server_at(server))
        await run_episodes(tasks("intention", "train")[:1], policy, horizon=2, on_format_error="continue")
        *_, asked, reply = server.requests[-1]["messages"]
    assert asked["tool_calls"][0]["function"]["arguments"] == sent_back
    assert asked["tool_calls"][0]["id"] == reply["tool_call_id"] != "None"


async def test_tools_on_does_not_fall_back() -> None:
    with MockServer(modest_user, tools=False) as server:
        [t] = await run_episodes(
            tasks("intention", "train")[:1], OpenAIPolicy(server_at(server), tools="on"), horizon=2
        )
    assert (t.admitted, t.stop_reason) == (False, "error")


async def test_a_reply_without_a_call_is_a_format_error_and_the_trajectory_admitted() -> None:
    with MockServer(lambda body: Answer("I would rather talk about the weather.")) as server:
        [t] = await run_episodes(tasks("intention", "train")[:1], OpenAIPolicy(server_at(server)), horizon=4)
    assert (t.stop_reason, t.rewards, t.admitted) == ("format", [0.0], True)


async def test_a_reply_cut_at_its_token_limit_stops_for_length() -> None:
    with MockServer(lambda body: Answer("<tool_call>{", finish_reason="length")) as server:
        [t] = await run_episodes(tasks("intention", "train")[:1], OpenAIPolicy(server_at(server)), horizon=4)
    assert t.stop_reason == "length"


async def test_the_agent_never_sees_the_hidden_part_of_the_task() -> None:
    train_tasks = tasks("intention", "train")[:5]
    with MockServer(DemonstratorAgent(train_tasks)) as server:
        await run_episodes(train_tasks, OpenAIPolicy(server_at(server)), horizon=1)
        texts = server.texts()
    for task in train_tasks:
        for detail in task.payload["details"]:
            assert all(detail["inquiry"] not in text for text in texts)


async def test_one_server_can_be_agent_and_user_and_the_ledger_distinguishes_them() -> None:
    train_tasks = tasks("persuade", "train")[:3]
    # Attempts are counted, so no request hangs: on a busy machine a short time-out would end requests that are still on their way.
    answered = {fault: share for fault, share in TWENTY_PERCENT.items() if fault != "timeout"}
    with MockServer(both(DemonstratorAgent(train_tasks), modest_user), faults=answered) as server:
        fields = server_at(server).model_dump()
        trajectories = await run_episodes(
            train_tasks, OpenAIPolicy(server_at(server)), horizon=3, user=("openai", fields)
        )
        attempts = len(server.requests)
    calls = [call for t in trajectories for turn in t.turns for call in turn.model_calls]
    assert {call.role for call in calls} == {"policy", "judge"}
    assert sum(call.attempts for call in calls) == attempts
    assert all(t.admitted and t.score == 0.0 for t in trajectories), "this user never changes its stance"
    assert trajectories[0].user == "gpt-4o"


def test_the_tool_can_only_be_on_off_or_auto() -> None:
    with raises("argument.unknown_value"):
        OpenAIPolicy(tools="maybe")  # type: ignore[arg-type]
