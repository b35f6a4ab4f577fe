"""Released SFT data instead of demonstrations: ShareGPT conversations and chats of messages, one JSON list or JSON lines.

A ``function_call`` turn of ShareGPT holds the bare JSON of a call, or of a list of calls. It becomes the Hermes text
that the agent must write, with call tags: `interact.parse_text` reads it back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from userrl_core.distill import read_chat
from userrl_core.errors import TaskError
from userrl_core.gyms.registry import gym_class
from userrl_core.gyms.released import read_rows
from userrl_core.interact import TOOL_NAME, parse_text, render_call
from userrl_core.records import Message

ROLES = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool", "system": "system"}
"""ShareGPT's names of the speakers."""


_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def read_conversations(path: Path, gyms: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the chats of a file.

    gyms: the gyms that the agent will play. Raises TaskError naming the file, the entry and the problem. Also raises
    it when no assistant turn is a call that one of these gyms allows.
    """
    chats = [
        read_chat(chat_of(row, f"{path}, entry {n}"), f"{path}, entry {n}") for n, row in enumerate(read_rows(path), 1)
    ]
    if gyms and not any(map(_calls(gyms), _replies(chats))):
        raise TaskError(
            "chats.invalid",
            f"{path} contains no call of {', '.join(gyms)}: no assistant turn has a {TOOL_NAME} call with a "
            "choice that these gyms allow. docs/recipes.md describes the format.",
        )
    return chats


def _calls(gyms: Collection[str]) -> Callable[[str], bool]:
    """Return a predicate: True for a reply that is a call allowed by one of the gyms."""
    choices = {choice for gym in map(gym_class, gyms) for choice in (*gym.choices(), *gym.aliases)}

    def is_call(reply: str) -> bool:
        call = parse_text(reply).call
        return call is not None and call.choice in choices

    return is_call


def _replies(chats: Sequence[Mapping[str, Any]]) -> list[str]:
    return [message["content"] for chat in chats for message in chat["messages"] if message["role"] == "assistant"]


def chat_of(row: Any, where: str) -> Any:
    """Return a ShareGPT row as a chat of messages; a row that has messages already is unchanged."""
    if not isinstance(row, dict) or "conversations" not in row:
        return row
    messages: list[Message] = [{"role": "system", "content": row["system"]}] if row.get("system") else []
    before = None
    for turn in row["conversations"]:
        speaker = turn.get("from") if isinstance(turn, dict) else None
        role = ROLES.get(str(speaker))
        if role is None or not isinstance(turn.get("value"), str):
            raise TaskError(
                "chats.invalid", f"{where}: a turn needs 'value' and 'from', which is one of {', '.join(ROLES)}."
            )
        text = turn["value"]
        if speaker == "function_call":
            text = _as_hermes(text, where)
            if before == "gpt":  # what the agent says before its call is one message with it
                text = f"{messages.pop()['content']}\n{text}"
        messages.append({"role": role, "content": text})
        before = speaker
    tools = row.get("tools") or []
    try:
        return {"messages": messages, "tools": json.loads(tools) if isinstance(tools, str) else tools}
    except ValueError:
        raise TaskError("chats.invalid", f"{where}: field 'tools' is not valid JSON.") from None


def _as_hermes(text: str, where: str) -> str:
    """Return a ``function_call`` turn with call tags; a turn that has them is unchanged."""
    if "<tool_call>" in text:
        return text
    thought = match[0].strip() if (match := _THOUGHT.match(text)) else ""
    body = text[match.end() :] if match else text
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    calls = value if isinstance(value, list) else [value]
    if not calls or not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        raise TaskError(
            "chats.invalid",
            f"{where}: a function_call turn must be JSON with 'name' and 'arguments', or a list of such calls.",
        )
    return "\n".join([thought] * bool(thought) + [_tagged(call) for call in calls])


def _tagged(call: Mapping[str, Any]) -> str:
    """Return one call between tags: in the format of demonstrations for a call of our tool, else unchanged."""
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):  # text that is no JSON stays text
            arguments = json.loads(arguments)
    body = json.dumps({"name": call["name"], "arguments": arguments}, ensure_ascii=False)
    tagged = f"<tool_call>\n{body}\n</tool_call>"
    ours = parse_text(tagged).call
    return tagged if ours is None else render_call(ours)
