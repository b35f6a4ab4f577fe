"""The one tool every agent has: ``interact_with_env(choice, content)`` (UserRL section 2, "Standardized Tool Interface").

It defines the call, its JSON schema, and the parser for two formats: Hermes/Qwen ``<tool_call>`` JSON in the text,
and OpenAI tool calls next to the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

TOOL_NAME = "interact_with_env"


class Choice(StrEnum):
    """The kinds of call; each gym allows a subset."""

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
    """One agent message, parsed.

    call: the first readable call, None without one (a format error).
    thought: the text before the call, without think tags.
    error: a sentence for the agent about a missing call, an unreadable call or more than one call, else None.
    extra_calls: number of ignored calls after the first.
    """

    call: InteractCall | None
    thought: str
    error: str | None = None
    extra_calls: int = 0


# White space is stripped after the match: a pattern that also matched it would try every split of a long run.
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_THINK_TAG = re.compile(r"</?think>")
_HINT = f'Reply with one call: <tool_call>{{"name": "{TOOL_NAME}", "arguments": {{"choice": ..., "content": ...}}}}</tool_call>.'


def tool_schema(choices: Iterable[str] = CHOICES) -> dict[str, Any]:
    """Return the tool as OpenAI function JSON, with ``choice`` restricted to the choices of a gym."""
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
    """Return the call as Hermes text, the format of demonstrations and of the local model."""
    arguments = json.dumps({"choice": str(call.choice), "content": call.content}, ensure_ascii=False)
    body = f'<tool_call>\n{{"name": "{TOOL_NAME}", "arguments": {arguments}}}\n</tool_call>'
    return f"{thought}\n{body}" if thought else body


def render_any_call(name: str, arguments: str) -> str:
    """Return a call of any tool as Hermes text. A readable call of our tool is rendered as demonstrations have it.

    arguments: JSON text. Arguments that are not JSON are kept as a JSON string.
    """
    call = _parse_call(name, arguments)
    if isinstance(call, InteractCall):
        return render_call(call)
    try:
        value = json.dumps(json.loads(arguments), ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        value = json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {value}}}\n</tool_call>'


@lru_cache(1024)
def parse_text(text: str) -> ParsedReply:
    """Parse a reply with ``<tool_call>`` JSON in its text. Never raises.

    The call must be a JSON object with this tool's name and two string arguments; anything else is a format error. A
    number as content is taken as its text.
    """
    # The closing tag may be missing, because a model may end its message early.
    blocks = _CALL.findall(text)
    start = text.find("<tool_call>")
    thought = _without_think_tags(text if start < 0 else text[:start])
    if not blocks:
        return ParsedReply(None, thought, f"No tool call was found. {_HINT}")
    return _keep_first([_parse_json(block.strip()) for block in blocks], thought)


def parse_tool_calls(content: str | None, tool_calls: Sequence[Mapping[str, Any]] | None) -> ParsedReply:
    """Parse an OpenAI chat message: its ``tool_calls`` if it has any, else its text. Never raises.

    tool_calls: ``[{"function": {"name": str, "arguments": JSON str}}, ...]`` as the API returns them.
    """
    if not tool_calls:
        return parse_text(content or "")
    parsed: list[InteractCall | str] = []
    for item in tool_calls:
        function = item.get("function") if isinstance(item, Mapping) else None
        if not isinstance(function, Mapping):
            parsed.append("The tool call has no function.")
            continue
        parsed.append(_parse_call(function.get("name"), function.get("arguments")))
    return _keep_first(parsed, _without_think_tags(content or ""))


def _keep_first(parsed: list[InteractCall | str], thought: str) -> ParsedReply:
    """Return the reply with its first call. parsed: for each call, the call itself or why it is unreadable."""
    first, extra = parsed[0], len(parsed) - 1
    if isinstance(first, str):
        # The first call counts, also where it is unreadable: no later one is carried out in its place.
        return ParsedReply(None, thought, f"{first} {_HINT}", extra)
    error = f"Only the first of {extra + 1} calls was carried out; make one call per message." if extra else None
    return ParsedReply(first, thought, error, extra)


def _parse_json(block: str) -> InteractCall | str:
    try:
        # raw_decode ignores what follows the object: without a closing tag that is the rest of the message.
        value, _ = json.JSONDecoder().raw_decode(block)
    except (ValueError, RecursionError):  # ValueError, not JSONDecodeError: an integer of more than 4,300 digits
        return "The tool call is not valid JSON."
    if not isinstance(value, dict):
        return "The tool call is not a JSON object."
    return _parse_call(value.get("name"), value.get("arguments"))


def _parse_call(name: object, arguments: object) -> InteractCall | str:
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
    if type(content) is int or (type(content) is float and math.isfinite(content)):
        content = str(content)  # a bare number is what its text says, as in the released code
    if not isinstance(choice, str) or not isinstance(content, str):
        return "The tool call needs two strings, choice and content."
    # A model may write `Action` or ` action`; choices are lower case.
    return InteractCall(_valid_unicode(choice).strip().lower(), _valid_unicode(content))


def _valid_unicode(text: str) -> str:
    """Replace lone surrogates by U+FFFD: JSON can encode them, but model servers refuse them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _without_think_tags(text: str) -> str:
    return _THINK_TAG.sub("", text).strip()
