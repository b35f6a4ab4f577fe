"""Messages and tools of a row of chats: OpenAI's and Anthropic's form (``{"messages": [...]}``) and ShareGPT's
(``{"conversations": [...]}``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from userrl_core.chats.message import MARKS
from userrl_core.chats.values import broken

SPEAKERS: Mapping[str, str] = {
    "human": "user",
    "gpt": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    **{role: role for role in ("system", "user", "assistant", "tool")},
}
"""ShareGPT's names of the speakers."""
_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def messages_of(row: Mapping[str, Any], where: str) -> list[Any]:
    """Return the messages of a row, in OpenAI's or Anthropic's form. Raises BrokenFile for a row that is no chat."""
    turns, messages = row.get("conversations"), row.get("messages")
    if turns and messages:
        broken(where, "it has both 'messages' and 'conversations'. Keep one")
    if isinstance(turns, list) and (turns or not messages):
        messages = _of_sharegpt(turns, where)
    elif not isinstance(messages, list):
        broken(where, "a chat needs a list 'messages', or a list 'conversations' in ShareGPT")
    return [{"role": "system", "content": row["system"]}, *messages] if row.get("system") else messages


def tools_of(row: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the tools of a row in OpenAI's form: its ``tools``, as a list or as JSON text, and the legacy ``functions``."""
    tools: list[dict[str, Any]] = []
    for key in ("tools", "functions"):
        value = row.get(key) or []
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                broken(where, f"field '{key}' is not valid JSON")
        if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
            broken(where, f"field '{key}' must be a list of objects")
        tools += map(_tool, value)
    return tools


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in OpenAI's form. Anthropic, ShareGPT and ``functions`` have a function without a frame."""
    if "name" not in tool or "function" in tool:
        return tool
    function = {"parameters" if key == "input_schema" else key: value for key, value in tool.items() if key != "type"}
    return {"type": "function", "function": function}


def _of_sharegpt(turns: list[Any], where: str) -> list[Any]:
    """Return ShareGPT's turns as messages; what the agent says before its call is one message with it."""
    messages: list[Any] = []
    for index, turn in enumerate(turns):
        if isinstance(turn, dict) and "role" in turn:  # a chat under ShareGPT's key
            messages.append(turn)
            continue
        speaker = str(turn.get("from")) if isinstance(turn, dict) else ""
        if speaker not in SPEAKERS or not isinstance(turn.get("value"), str):
            broken(where, f"conversations[{index}] needs 'value' and 'from', which is one of {', '.join(SPEAKERS)}")
        message = {key: value for key, value in turn.items() if key not in ("from", "value")}
        message |= {"role": SPEAKERS[speaker], "content": turn["value"]}
        if speaker == "function_call":
            message |= _with_calls(turn["value"], where)
            previous = turns[index - 1] if index else {}
            follows_text = "role" not in previous and previous.get("from") in ("gpt", "assistant")
            if follows_text and _marks(messages[-1]) == _marks(message):
                message = _joined(messages.pop(), message)
        messages.append(message)
    return messages


def _joined(text: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    """Return what the agent says and its call as one message. A field of which they have two values has the list of both."""
    message = {**text, **call}
    for key in text.keys() & call.keys() - {"role", "content"}:
        if text[key] != call[key]:
            message[key] = [
                value for part in (text, call) for value in (part[key] if isinstance(part[key], list) else [part[key]])
            ]
    message["content"] = "\n".join([text["content"], *[call["content"]] * bool(call["content"])])
    return message


def _marks(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: message[key] for key in MARKS if message.get(key) is not None}


def _with_calls(text: str, where: str) -> dict[str, Any]:
    """Return text and calls of a ``function_call`` turn: the JSON of a call, or of a list of calls, after a thought."""
    if "<tool_call>" in text:
        return {"content": text}
    thought = match[0] if (match := _THOUGHT.match(text)) else ""
    try:
        value = json.loads(text[len(thought) :])
    except (ValueError, RecursionError):
        value = None
    calls = value if isinstance(value, list) else [value]
    if not calls or not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        broken(where, "a function_call turn must be JSON with 'name' and 'arguments', or a list of such calls")
    return {"content": thought.strip(), "tool_calls": calls}
