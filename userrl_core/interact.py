"""The one tool every agent has: ``interact_with_env(choice, content)`` (UserRL section 2, "Standardized Tool Interface").

Holds the call itself, its JSON schema, and the reading of a model's reply in the two shapes that occur: Hermes/Qwen
``<tool_call>`` JSON inside the text, and OpenAI tool calls beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

TOOL_NAME = "interact_with_env"


class Choice(StrEnum):
    """What an agent may do with a turn; a gym allows a subset."""

    ACTION = "action"
    SEARCH = "search"
    ANSWER = "answer"


CHOICES: tuple[Choice, ...] = tuple(Choice)


@dataclass(frozen=True, slots=True)
class InteractCall:
    """One use of the tool. ``choice`` is a `Choice` or its string; equality and hashing agree between the two."""

    choice: str
    content: str


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What one agent message says.

    call: the first readable call, or None when there is none (a format error).
    thought: the text before the call, without think tags.
    error: a sentence for the agent when something was wrong (no call, unreadable call, more than one call), else None.
    extra_calls: how many calls after the first were ignored.
    """

    call: InteractCall | None
    thought: str
    error: str | None = None
    extra_calls: int = 0


# White space is stripped afterwards: a pattern that takes it in too tries every split of a long run of it.
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_THINK_TAG = re.compile(r"</?think>")
_HOW = f'Reply with one call: <tool_call>{{"name": "{TOOL_NAME}", "arguments": {{"choice": ..., "content": ...}}}}</tool_call>.'


def tool_schema(choices: Iterable[str] = CHOICES) -> dict[str, Any]:
    """The tool as OpenAI function JSON, its ``choice`` enum restricted to what a gym allows."""
    return {
        "type": "function",
        "function": {
            "name": TOOL_NAME,
            "description": "Talk to the user, look something up, or hand in an answer.",
            "parameters": {
                "type": "object",
                "properties": {
                    "choice": {"type": "string", "enum": [str(c) for c in choices], "description": "The kind of step."},
                    "content": {"type": "string", "description": "What to say, look up or answer."},
                },
                "required": ["choice", "content"],
                "additionalProperties": False,
            },
        },
    }


def render_call(call: InteractCall, thought: str = "") -> str:
    """The call as Hermes text, the shape that demonstrations are written in and the local model learns."""
    arguments = json.dumps({"choice": str(call.choice), "content": call.content}, ensure_ascii=False)
    body = f'<tool_call>\n{{"name": "{TOOL_NAME}", "arguments": {arguments}}}\n</tool_call>'
    return f"{thought}\n{body}" if thought else body


def parse_text(text: str) -> ParsedReply:
    """Read a reply that carries its calls as ``<tool_call>`` JSON. Never raises.

    A missing closing tag is tolerated (the model ended its message early); anything else that is not a JSON object with
    this tool's name and two string arguments is a format error.
    """
    blocks = _CALL.findall(text)
    start = text.find("<tool_call>")
    thought = _clean(text if start < 0 else text[:start])
    if not blocks:
        return ParsedReply(None, thought, f"No tool call was found. {_HOW}")
    return _first([_read_json(block.strip()) for block in blocks], thought)


def parse_tool_calls(content: str | None, tool_calls: Sequence[Mapping[str, Any]] | None) -> ParsedReply:
    """Read an OpenAI chat message: its ``tool_calls`` when there are any, else its text. Never raises.

    tool_calls: ``[{"function": {"name": str, "arguments": JSON str}}, ...]`` as the API returns them.
    """
    if not tool_calls:
        return parse_text(content or "")
    read: list[InteractCall | str] = []
    for item in tool_calls:
        function = item.get("function") if isinstance(item, Mapping) else None
        if not isinstance(function, Mapping):
            read.append("The tool call has no function.")
            continue
        read.append(_read_call(function.get("name"), function.get("arguments")))
    return _first(read, _clean(content or ""))


def _first(read: list[InteractCall | str], thought: str) -> ParsedReply:
    head, extra = read[0], len(read) - 1
    if isinstance(head, str):
        return ParsedReply(None, thought, f"{head} {_HOW}", extra)
    error = f"Only the first of {extra + 1} calls was carried out; make one call per message." if extra else None
    return ParsedReply(head, thought, error, extra)


def _read_json(block: str) -> InteractCall | str:
    try:
        # raw_decode: what follows the object (a missing closing tag swallows the rest of the message) is not the call.
        value, _ = json.JSONDecoder().raw_decode(block)
    except (ValueError, RecursionError):  # ValueError itself: a whole number of more than 4,300 digits
        return "The tool call is not valid JSON."
    if not isinstance(value, dict):
        return "The tool call is not a JSON object."
    return _read_call(value.get("name"), value.get("arguments"))


def _read_call(name: object, arguments: object) -> InteractCall | str:
    if name != TOOL_NAME:
        return f"There is no tool of that name; the only tool is {TOOL_NAME}."
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return "The tool call's arguments are not valid JSON."
    if not isinstance(arguments, dict):
        return "The tool call's arguments are not a JSON object."
    choice, content = arguments.get("choice"), arguments.get("content")
    if not isinstance(choice, str) or not isinstance(content, str):
        return "The tool call needs two strings, choice and content."
    return InteractCall(_whole(choice).strip().lower(), _whole(content))


def _whole(text: str) -> str:
    """The text with U+FFFD for halves of characters, which JSON can spell and no model server takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _clean(text: str) -> str:
    return _THINK_TAG.sub("", text).strip()
