"""Rollouts of NeMo Gym: one JSON line each, with ``responses_create_params``, ``response`` and ``reward``.

Both are in the form of OpenAI's Responses API. Its items are joined to messages: reasoning, text and function calls
up to the next output of a tool are one agent message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.foreign.conversation import ENDED, ForeignConversation, given, other_fields, scored
from analysis.foreign.dialogue import divided, task_of_opening
from userrl_core.chats.message import text_of
from userrl_core.chats.stream import items
from userrl_core.chats.values import broken, count, mapping, name_of, sequence

ROW = ("reward", "_ng_task_index", "_ng_rollout_index")
ITEM = ("type", "role", "content", "summary", "name", "arguments", "output", "id", "call_id", "status")
"""The fields of a rollout and of an item that are read by name. The others of a rollout are stored as they are."""


def read_nemo_gym(path: Path) -> Iterator[ForeignConversation]:
    """Yield the rollouts of a file."""
    for where, row in items(path):
        params = mapping(row.get("responses_create_params"), where, "responses_create_params")
        response = mapping(row.get("response") or {}, where, "response")
        task_input = params.get("input")
        opening = _messages(
            [{"role": "user", "content": task_input}] if isinstance(task_input, str) else task_input, where, "input"
        )
        instructions = given(params, ("instructions",))
        if isinstance(instructions.get("instructions"), str | list):
            opening.insert(0, {"role": "system", "content": instructions.pop("instructions")})
        output = _messages(response.get("output"), where, "response.output")
        chat = divided([*opening, *output], where, prompt=len(opening))
        usage = mapping(response.get("usage") or {}, where, "response.usage")
        reward, reason = scored(row.get("reward"), where, "reward", _failure(row))
        agent = mapping(row.get("agent_ref") or {}, where, "agent_ref")
        task = name_of(row.get("_ng_task_index"))
        conversation = ForeignConversation(
            where,
            name_of(agent.get("name")) or "nemo-gym",
            task or task_of_opening(chat.opening),
            {"input": task_input} if task_input else {},
            chat.opening,
            chat.turns,
            score=reward,
            attempt=count(row.get("_ng_rollout_index"), where, "_ng_rollout_index", chat.unread) if task else None,
            policy=name_of(response.get("model")) or name_of(params.get("model")),
            stop_reason="length" if response.get("incomplete_details") else ENDED,
            reject_reason=reason,
            prompt_tokens=count(usage.get("input_tokens"), where, "usage.input_tokens", chat.unread),
            completion_tokens=count(usage.get("output_tokens"), where, "usage.output_tokens", chat.unread),
            unread=chat.unread,
            silent=chat.silent,
        )
        requested = {} if params.get("model") == conversation.policy else given(params, ("model",))
        inner = {
            "responses_create_params": other_fields(params, ("input", "instructions", "model")) | requested,
            "response": other_fields(response, ("output", "model", "usage")),
        }
        conversation.keep(other_fields(row | inner, ROW if task else ("reward",)), reward=row.get("reward"))
        conversation.count(instructions, (), "responses_create_params.")
        conversation.count(usage, ("input_tokens", "output_tokens", "total_tokens"), "usage.")
        for item in (*(task_input if isinstance(task_input, list) else ()), *(response.get("output") or ())):
            conversation.count(item, ITEM, "item.")
        conversation.add_sum_of_calls()
        yield conversation


def _failure(row: Mapping[str, Any]) -> str | None:
    failure = name_of(row.get("_ng_failure_class"))
    return f"the rollout failed: {failure}" if failure else None


def _messages(items: Any, where: str, name: str) -> list[dict[str, Any]]:
    """Return the items of a response as chat messages."""
    messages: list[dict[str, Any]] = []
    speaking: dict[str, Any] | None = None  # the agent's message, until a tool or a user answers
    for item in sequence(items, where, name):
        entry = mapping(item, where, f"an item of {name}")
        kind = entry.get("type") or "message"
        if kind == "message" and entry.get("role") != "assistant":
            messages.append({"role": entry.get("role") or "user", "content": entry.get("content")})
            speaking = None
        elif kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": entry.get("call_id"), "content": entry.get("output")})
            speaking = None
        elif kind in ("message", "function_call", "reasoning"):
            if speaking is None or (kind == "message" and speaking["content"]):
                speaking = {"role": "assistant", "content": "", "reasoning": "", "tool_calls": []}
                messages.append(speaking)
            if kind == "message":
                speaking["content"] = entry.get("content")
            elif kind == "function_call":
                speaking["tool_calls"].append(entry)
            else:
                texts = (speaking["reasoning"], text_of(entry.get("summary")), text_of(entry.get("content")))
                speaking["reasoning"] = "\n".join(filter(None, texts))
        elif not isinstance(kind, str):
            broken(where, f"an item of {name} has no type")
        else:  # a call of a built-in tool, such as web_search_call
            messages.append({"role": "tool", "content": [{"type": kind}]})
            speaking = None
    return messages
