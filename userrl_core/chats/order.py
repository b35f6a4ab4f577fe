"""The order of the results of parallel calls, and the key of a message's words.

A stored turn and a model's chat name no ids, so only the order says which call a result answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

RESULT_KEYS = ("tool_call_id", "tool_use_id", "toolCallId", "toolUseId", "call_id", "id")
CALL_KEYS = ("call_id", "toolCallId", "toolUseId", "id")
"""The keys of an id, the one that connects before the one that is only a name of the message."""
CALLS = ("tooluse", "toolcall", "functioncall")
RESULTS = ("toolresult", "toolcallresponse", "functionresponse", "functioncalloutput")
"""How the kind of a part that is a call or a result ends, in small letters: ``mcp_tool_use``, ``toolUse``, ``tool-call``."""


def arranged(messages: Sequence[Any]) -> list[Any]:
    """Return messages with the results of one message's calls in the order of these calls, and ``parts`` as ``content``.

    Only results (messages of a tool, and parts whose kind is a result) change places, with each other, and only those whose id
    is the id of one of the calls.
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
        or message.get("content") not in (None, "", [])
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


def kind_of(part: Any) -> tuple[str, Any]:
    """Return a part's kind in small letters, and its fields. Bedrock and Gemini name the kind by a key: ``{"toolUse": {...}}``."""
    if not isinstance(part, dict):
        return "", part
    bodies = {part["type"]: part} if isinstance(part.get("type"), str) else part
    kinds = ((re.sub("[-_]", "", kind).lower(), body) for kind, body in bodies.items() if isinstance(body, dict))
    return next(((kind, body) for kind, body in kinds if kind.endswith((*CALLS, *RESULTS))), ("", part))


def _ranks(message: Mapping[str, Any]) -> dict[str, int]:
    """Return the place of each call by its id; {} if two calls have one id."""
    calls, parts = (message[key] if isinstance(message.get(key), list) else [] for key in ("tool_calls", "content"))
    kinds = (kind_of(part) for part in parts)
    bodies = (*map(as_call, calls), *(body for kind, body in kinds if kind.endswith(CALLS)))
    ids = [identity for body in bodies if (identity := _id([body], CALL_KEYS))]
    return {identity: rank for rank, identity in enumerate(ids)} if len(set(ids)) == len(ids) else {}


def _sort(items: list[Any], start: int, end: int, ranks: Mapping[str, int]) -> None:
    """Sort the results between two places by the rank of their calls. Other items keep their place."""
    ranked = [(ranks[identity], at) for at in range(start, end) if (identity := _answered(items[at])) in ranks]
    moved = [items[at] for _, at in sorted(ranked)]
    for (_, at), item in zip(ranked, moved, strict=True):
        items[at] = item


def _answered(item: Any) -> str:
    """Return the id of the call that a message or a part is the result of; "" for another one."""
    kind, body = kind_of(item)
    is_result = kind.endswith(RESULTS)
    if not isinstance(item, dict) or not (item["role"] in ("tool", "function") if "role" in item else is_result):
        return ""
    return _id((item, body) if is_result else (item,), RESULT_KEYS)  # Bedrock: {"toolResult": {"toolUseId": ...}}


def _id(bodies: Sequence[Any], keys: Sequence[str]) -> str:
    """Return the first id of a call or a result, as text; "" without one."""
    objects = [body for body in bodies if isinstance(body, dict)]
    return next((str(body[key]) for body in objects for key in keys if isinstance(body.get(key), str | int)), "")
