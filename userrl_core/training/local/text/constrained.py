"""Replies that must be a tool call, or must not contain one: OpenAI's ``tool_choice``.

The head of a required call is one of a few known texts, and the model chooses among them token by token, as its tokenizer
writes them. Any other token is sampled only if the reply's text with it can still become what is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from userrl_core.interact import CHOICES, TOOL_NAME
from userrl_core.training.local.text.calls import choices_of, from_line

_START, _ARGUMENTS, _END = "<tool_call>", '"arguments":', "</tool_call>"
_INCOMPLETE = "EOF while parsing"
"""What pydantic's parser says of a text that is the beginning of a JSON value."""


@dataclass(frozen=True, slots=True)
class CallRule:
    """Which texts a reply may have.

    heads: beginnings of the calls, one of which the whole reply must be; without heads no call may be in it. line: the
    model writes a call as one line (see `calls`). names: by head, the only names that the arguments may have, each once: a
    model that begins a name again and again would never end its call.
    """

    heads: tuple[str, ...] = ()
    line: bool = False
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def allows(self, text: str, ended: bool) -> bool:
        """Return whether a text may stay the beginning of a reply that has its head. ended: nothing follows it."""
        if not self.heads:
            return _START not in (from_line(text) if self.line else text)
        return self.complete(text) or (not ended and any(self._continues(text, head) for head in self.heads))

    def complete(self, text: str) -> bool:
        """Return whether the text is a whole call."""
        return any(text.startswith(head) and _closes(_arguments(text, head)) for head in self.heads if head[0] == "<")

    def _continues(self, text: str, head: str) -> bool:
        if not text.startswith(head):
            return False
        if head[0] != "<":
            return True  # after the head of a line comes free text
        arguments = _arguments(text, head)
        if arguments.lstrip()[:1] not in ("", "{") or _END in arguments or _json_state(arguments) == "no JSON":
            return False
        return head not in self.names or _names_fit(arguments, self.names[head])


def required_call(tools: Sequence[Mapping[str, Any]], *, line: bool) -> CallRule:
    """Return the rule of a reply that calls one of these tools. line: as in `CallRule`."""
    heads: list[str] = []
    names: dict[str, frozenset[str]] = {}
    for function in (tool.get("function", tool) for tool in tools):
        head = f'{_START}\n{{"name": {json.dumps(function["name"])}, {_ARGUMENTS}'
        choices = (choices_of(function) or list(CHOICES)) if function["name"] == TOOL_NAME else []
        whole = [f"{head} {{}}}}"] if _takes_nothing(function) else [head]
        calls = [f'{head} {{"choice": {json.dumps(choice)}, "content": "' for choice in choices] or whole
        heads += calls
        parameters = function.get("parameters")
        closed = isinstance(parameters, Mapping) and not parameters.get("additionalProperties")
        if closed and isinstance(properties := parameters.get("properties"), Mapping):
            names |= dict.fromkeys(calls, frozenset(properties))
        heads += [f"{choice}:" for choice in choices if line and choice in CHOICES]
    return CallRule(tuple(heads), line, names)


def _takes_nothing(function: Mapping[str, Any]) -> bool:
    parameters = function.get("parameters")
    return isinstance(parameters, Mapping) and parameters.get("properties") == {}


def _names_fit(arguments: str, names: frozenset[str]) -> bool:
    """Return whether the beginning of an object has only these names, each once, and begins no other."""
    complete: list[str] = []
    depth, begins, name, quoted, escaped = 0, False, None, False, False
    for character in arguments:
        if quoted:
            closes = character == '"' and not escaped
            escaped = character == "\\" and not escaped
            if not closes:
                name = None if name is None else name + character
                continue
            if name is not None:
                complete.append(name)
            quoted, name = False, None
        elif character == '"':
            quoted, name, begins = True, "" if begins else None, False
        elif character in "{[":
            depth += 1
            begins = depth == 1
        elif character in "}]":
            depth -= 1
        elif character == ",":
            begins = depth == 1
    unused = names.difference(complete)
    if len(unused) != len(names) - len(complete):
        return False
    if name is not None:
        return any(other.startswith(name) for other in unused)
    return bool(unused) or not (begins and complete)


def _arguments(text: str, head: str) -> str:
    return text[head.index(_ARGUMENTS) + len(_ARGUMENTS) :]


def _closes(arguments: str) -> bool:
    """Return whether the arguments are a whole object and the call's brace follows them."""
    body = arguments.removesuffix(_END).rstrip()
    return body.endswith("}") and _json_state(body[:-1]) == "whole"


def _json_state(text: str) -> str:
    """Return ``whole`` for a JSON value, ``begun`` for the beginning of one, else ``no JSON``."""
    try:
        from_json(text, allow_inf_nan=False)
    except ValueError as error:
        return "begun" if _INCOMPLETE in str(error) else "no JSON"
    return "whole"
