"""The order of the results of parallel calls, and the key of a message's words.

A stored turn and a model's chat name no ids, so only the order says which call a result answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

RESULT_KEYS = ("tool_call_id", "tool_use_id", "toolCallId", "toolUseId", "call_id", "id")
CALL_KEYS = ("call_id", "toolCallId", "toolUseId", "id")
"""The keys of an id, the one that connects before the one that is only a name of the message."""


def arranged(messages: Sequence[Any]) -> list[Any]:
    """Return messages with the results of one message's calls in the order of these calls, and ``parts`` as ``content``.

    Only results change places, with each other, and only those whose id is the id of one of the calls.
    """
    ordered = [_with_content(message) for message in messages]
    ranks: dict[str, int] = {}
    start = 0
    for at, message in enumerate(ordered):
        if not isinstance(message, dict):
            continue
        if message.get("role") == "assistant":
            _sort(ordered, start, at, ranks)
            ranks, start = _ranks(message), at
        elif isinstance(message.get("content"), list) and ranks:
            parts = list(message["content"])
            _sort(parts, 0, len(parts), ranks)
            ordered[at] = {**message, "content": parts}
    _sort(ordered, start, len(ordered), ranks)
    return ordered


def _with_content(message: Any) -> Any:
    """Return a message with its ``parts`` as content, if it has no content (AI SDK, OpenTelemetry)."""
    if (
        not isinstance(message, dict)
        or message.get("content") is not None
        or not isinstance(message.get("parts"), list)
    ):
        return message
    return {**{key: value for key, value in message.items() if key != "parts"}, "content": message["parts"]}


def as_call(call: Any) -> Any:
    """Return a call as an object. verifiers saves each call as JSON text."""
    if isinstance(call, str):
        with suppress(ValueError, RecursionError):
            return json.loads(call)
    return call


def _ranks(message: Mapping[str, Any]) -> dict[str, int]:
    """Return the place of each call by its id; {} if two calls have one id."""
    lists = [message[key] for key in ("tool_calls", "content") if isinstance(message.get(key), list)]
    ids = [_id(as_call(call), CALL_KEYS) for calls in lists for call in calls]
    call_ids = [identity for identity in ids if identity]
    return {identity: rank for rank, identity in enumerate(call_ids)} if len(set(call_ids)) == len(call_ids) else {}


def _sort(items: list[Any], start: int, end: int, ranks: Mapping[str, int]) -> None:
    """Sort the results between two places by the rank of their calls. Other items keep their place."""
    ranked = [(ranks[identity], at) for at in range(start, end) if (identity := _id(items[at], RESULT_KEYS)) in ranks]
    moved = [items[at] for _, at in sorted(ranked)]
    for (_, at), item in zip(ranked, moved, strict=True):
        items[at] = item


def _id(item: Any, keys: Sequence[str]) -> str:
    """Return the first id of a call or a result, as text; "" without one."""
    if not isinstance(item, dict) or item.get("role") == "assistant":
        return ""
    bodies = (item, *(value for value in item.values() if isinstance(value, dict)))  # Bedrock: {"toolResult": {...}}
    return next((str(body[key]) for body in bodies for key in keys if isinstance(body.get(key), str | int)), "")
