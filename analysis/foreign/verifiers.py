"""Saved rollouts of verifiers: ``results.jsonl`` (a rollout per line) and ``traces.jsonl`` (an episode per line).

A file ``metadata.json`` in the same folder names the model and the environment of ``results.jsonl``. An episode may have
several traces; its own fields are stored with each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.foreign.conversation import (
    ENDED,
    NOT_A_NUMBER,
    ForeignCall,
    ForeignConversation,
    given,
    other_fields,
    reward_number,
    scored,
)
from analysis.foreign.dialogue import Chat, divided, task_of_opening
from userrl_core.chats.stream import MAX_BYTES, items, value_of
from userrl_core.chats.values import broken, count, mapping, name_of, number, sequence
from userrl_core.user_path import open_file

STOPS: Mapping[str, str] = {
    "max_turns_reached": "horizon",
    "max_turns": "horizon",
    "prompt_too_long": "length",
    "max_total_completion_tokens_reached": "length",
    "has_error": "error",
}
"""Our stop reasons for verifiers' stop conditions; every other one is `ENDED`."""

ROLLOUT = (
    *(
        "prompt",
        "completion",
        "answer",
        "example_id",
        "task",
        "reward",
        "token_usage",
        "stop_condition",
    ),
    *("metrics", "info", "trajectory"),
)
TRACE = ("nodes", "task", "rewards", "metrics", "stop_condition", "calls")
CALL_USAGE = ("prompt_tokens", "cached_input_tokens", "completion_tokens", "total_tokens", "cost")
"""The fields of a rollout and of a trace that are read by name. The others are stored as they are."""


def read_verifiers(path: Path) -> Iterator[ForeignConversation]:
    """Yield the rollouts of either file."""
    about: Mapping[str, Any] | None = None
    for where, row in items(path):
        if row.get("traces") is not None:
            yield from _episode(where, row)
        elif "nodes" in row:
            yield _trace(where, row, "")
        else:
            about = _metadata(path.parent / "metadata.json") if about is None else about
            yield _rollout(where, row, about)


def _metadata(path: Path) -> Mapping[str, Any]:
    """Return what is said of all rollouts; {} without such a file. Raises BrokenFile for one that cannot be read."""
    if not path.exists() and not path.is_symlink():
        return {}
    try:
        with open_file(path) as file:
            text = file.read(MAX_BYTES)
    except OSError as error:
        broken(str(path), f"it cannot be read ({error.strerror or error}). Mend it, or move it away")
    return mapping(value_of(text, str(path)), str(path), "it")


def _episode(where: str, row: Mapping[str, Any]) -> Iterator[ForeignConversation]:
    """Yield the traces of an episode. One without a trace is a conversation without messages, which has its fields."""
    env = mapping(row.get("env") or {}, where, "env")
    name, settings = name_of(env.get("id")), other_fields(env, ("id",))
    episode = other_fields({**row, "env": settings}, ("traces",))
    traces = [mapping(trace, where, "a trace") for trace in sequence(row["traces"], where, "traces")]
    if not traces:
        yield _trace(where, episode, name)
    for trace in traces:
        conversation = _trace(where, trace, name)
        # The episode's task is its traces' own.
        if about := {key: value for key, value in episode.items() if value != trace.get(key)}:
            conversation.info["episode"] = about
        yield conversation


def _rollout(where: str, row: Mapping[str, Any], about: Mapping[str, Any]) -> ForeignConversation:
    if "completion" not in row or "prompt" not in row:
        broken(where, "a rollout of verifiers needs 'prompt' and 'completion'")
    prompt = _messages(row["prompt"], "user", where, "prompt")
    completion = _messages(row["completion"], "assistant", where, "completion")
    chat = divided([*prompt, *completion], where, prompt=len(prompt))
    _turn_rewards(chat, row.get("trajectory"), where)
    example, error = row.get("example_id"), row.get("error")
    reward, reason = scored(row.get("reward"), where, "reward", _failure(error) if error else None)
    usage = mapping(row.get("token_usage") or {}, where, "token_usage")
    stop = name_of(row.get("stop_condition"))
    truncated = "length" if row.get("is_truncated") else ENDED
    conversation = ForeignConversation(
        where,
        name_of(row.get("task")) or name_of(about.get("env_id")) or "verifiers",
        name_of(example) or task_of_opening(chat.opening),
        given(row, ("prompt", "answer")),
        chat.opening,
        chat.turns,
        score=reward,
        policy=name_of(about.get("model")),
        stop_reason="error" if error else STOPS.get(stop, truncated),
        reject_reason=reason,
        prompt_tokens=count(usage.get("input_tokens"), where, "token_usage.input_tokens", chat.unread),
        completion_tokens=count(usage.get("output_tokens"), where, "token_usage.output_tokens", chat.unread),
        info=given(row, ("metrics", "stop_condition", "info")),
        unread=chat.unread,
        silent=chat.silent,
        file={"metadata": about} if about else {},
    )
    conversation.keep(other_fields(row, ROLLOUT), reward=row.get("reward"))
    conversation.count(usage, ("input_tokens", "output_tokens"), "token_usage.")
    conversation.unread.update(["field trajectory"] * bool(row.get("trajectory")))
    conversation.add_sum_of_calls()
    return conversation


def _messages(value: Any, role: str, where: str, name: str) -> list[Any]:
    """Return messages; a plain text, as in verifiers' completion mode, becomes one message of this role."""
    return [{"role": role, "content": value}] if isinstance(value, str) else sequence(value, where, name)


def _turn_rewards(chat: Chat, steps: Any, where: str) -> None:
    """Store the rewards of the steps with the turns, where every turn has a step with a reward."""
    single = all(len(turns) <= 1 for turns in chat.turns_of)  # else turns and steps are not the same messages
    if not isinstance(steps, list) or not single or len(steps) != len(chat.turns):
        return
    rewards = [reward_number(step.get("reward"), where, "reward") if isinstance(step, dict) else None for step in steps]
    if all(reward is not None for reward in rewards):
        for turn, reward in zip(chat.turns, rewards, strict=True):
            turn.reward = reward


def _failure(error: Any) -> str:
    text = error.get("error") or error.get("type") if isinstance(error, dict) else error
    return f"the rollout failed: {text}" if isinstance(text, str) else "the rollout failed"


def _trace(where: str, row: Mapping[str, Any], env: str) -> ForeignConversation:
    nodes = [mapping(node, where, "a node") for node in sequence(row.get("nodes"), where, "nodes")]
    path = _main_branch(nodes, where)
    messages = [nodes[node_index].get("message") for node_index in path]
    prompt = next((at for at, node_index in enumerate(path) if nodes[node_index].get("sampled")), len(path))
    chat = divided(messages, where, prompt=prompt)
    task = mapping(row.get("task") or {}, where, "task")
    data = mapping(task.get("data") or {}, where, "task.data")
    rewards = mapping(row.get("rewards") or {}, where, "rewards")
    parts = [_weighted(reward, where) for reward in rewards.values()]
    numeric_parts = [part for part in parts if part is not None]
    score = sum(numeric_parts) if parts and len(numeric_parts) == len(parts) else None
    reward_values = [reward.get("score") if isinstance(reward, dict) else reward for reward in rewards.values()]
    unknown = "the file has no reward" if None in reward_values or not reward_values else f"a reward {NOT_A_NUMBER}"
    errors = sequence(row.get("errors"), where, "errors")
    stop = name_of(row.get("stop_condition"))
    conversation = ForeignConversation(
        where,
        env or name_of(task.get("type")) or "verifiers",
        name_of(task.get("key")) or name_of(task.get("hash")) or task_of_opening(chat.opening),
        data,
        chat.opening,
        chat.turns,
        score=score,
        policy=_model(row, where),
        stop_reason=STOPS.get(stop, "error" if errors and score is None else ENDED),
        reject_reason=None if score is not None else _failure(errors[-1]) if errors else unknown,
        info=given(row, ("rewards", "metrics", "stop_condition")),
        unread=chat.unread,
        silent=chat.silent,
    )
    conversation.keep(other_fields(row, TRACE))
    conversation.count(task, ("data", "type", "key", "hash"), "task.")
    for node_index in path:
        conversation.count(nodes[node_index], ("message", "parent", "sampled"), "node.")
    conversation.unread.update({"message of another branch": len(nodes) - len(path)})
    calls = sequence(row.get("calls"), where, "calls")
    _calls(
        conversation,
        calls,
        {node_index: turns[0] for node_index, turns in zip(path, chat.turns_of, strict=True) if turns},
    )
    return conversation


def _main_branch(nodes: list[dict[str, Any]], where: str) -> list[int]:
    """Return the path from a root to the last node. Other branches are earlier versions of the context."""
    path: list[int] = []
    node_index: Any = len(nodes) - 1 if nodes else None
    while node_index is not None:
        if isinstance(node_index, bool) or not isinstance(node_index, int) or not 0 <= node_index < len(nodes):
            broken(where, "a node has a parent that does not exist")
        path.append(node_index)
        if len(path) > len(nodes):
            broken(where, "the parents of a node form a circle")
        node_index = nodes[node_index].get("parent")
    return path[::-1]


def _weighted(reward: Any, where: str) -> float | None:
    if reward is None or isinstance(reward, (int, float, str)):
        return reward_number(reward, where, "a reward")
    entry = mapping(reward, where, "a reward")
    score = reward_number(entry.get("score"), where, "a reward")
    weight = number(entry.get("weight", 1.0), where, "a weight")
    return None if score is None or weight is None else score * weight


def _model(row: Mapping[str, Any], where: str) -> str:
    for call in sequence(row.get("calls"), where, "calls"):
        if isinstance(call, dict) and isinstance(call.get("model"), str):
            return str(call["model"])
    agent = mapping(row.get("agent") or {}, where, "agent")
    config = agent.get("config")
    model = config.get("model") if isinstance(config, dict) else None
    return name_of(model.get("name") if isinstance(model, dict) else model)


def _calls(conversation: ForeignConversation, calls: list[Any], turn_of: Mapping[int, int]) -> None:
    """Store each model call with the turn of its node. turn_of: the first turn of each node that has one."""
    where, unread = conversation.where, conversation.unread
    for item in calls:
        call = mapping(item, where, "a call")
        usage = mapping(call.get("usage") or {}, where, "usage")
        conversation.count(call, ("node", "model", "usage", "time"), "call.")
        conversation.count(usage, CALL_USAGE, "usage.")
        read = count(usage.get("prompt_tokens"), where, "usage.prompt_tokens", unread)
        cached = count(usage.get("cached_input_tokens"), where, "usage.cached_input_tokens", unread)
        prompt = None if read is None else read + (cached or 0)
        completion = count(usage.get("completion_tokens"), where, "usage.completion_tokens", unread)
        span = mapping(call.get("time") or {}, where, "time")
        start, end = (number(span.get(key), where, f"time.{key}", unread) for key in ("start", "end"))
        seconds = end - start if start is not None and end else None
        price = number(usage.get("cost"), where, "usage.cost", unread)
        stored = ForeignCall("policy", name_of(call.get("model")), prompt, completion, seconds, price)
        turn = turn_of.get(call["node"]) if isinstance(call.get("node"), int) else None
        if turn is None:
            conversation.calls.append(stored)
            continue
        at = conversation.turns[turn]
        at.calls.append(stored)
        at.prompt_tokens, at.completion_tokens, at.seconds = prompt, completion, seconds
