"""The form of a pretrained model's calls, for a chat template that does not define one.

A template that ignores ``tools`` never shows the model a call's syntax, so the syntax goes into the system message. Three
forms can be chosen (`ModelConfig.calls`):

- json: the Hermes tool call of `userrl_core.interact`. It has about 40 tokens; 37 are always the same.
- lean: the fixed parts of the call become tokens of the vocabulary: one head per choice, and one tail that also ends
  the turn.
- line: ``action: content``, one line.

The text of a reply is always the Hermes call: `CallStyle` translates, so the stored text does not depend on the form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import AddedToken

from userrl_core.interact import CHOICES, TOOL_NAME, InteractCall, parse_text, render_call
from userrl_core.records import Message
from userrl_core.training.config import CallForm
from userrl_core.training.local.text.tokenizer import END, LINE_MARK, PLAIN, START, TEMPLATES, call_parts, rendered

_PROBE = [{"role": "user", "content": "."}]
_PROBE_TOOL = {"type": "function", "function": {"name": "probe", "description": "", "parameters": {}}}
_LINE = re.compile(rf"^({'|'.join(CHOICES)}):[ ]?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CallStyle:
    """How a tokenizer's model learns of calls and writes them.

    line: one line in place of a Hermes call. told: the template ignores tools, so the syntax of a call is part of the
    system message. observed: the role of observations, ``user`` where such a template has no role ``tool``.
    """

    line: bool = False
    told: bool = False
    observed: str = "tool"

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Message], list[Mapping[str, Any]]]:
        """Return the messages of an opening, and the tools that the template gets with them."""
        if tools and self.told:
            return with_syntax(messages, tools, "line" if self.line else "json"), []
        return list(messages), list(tools)

    def following(self, message: Message) -> Message:
        """Return a message after the opening, a demonstrated reply or what followed it, as the template renders it."""
        if message["role"] == "assistant":
            return {**message, "content": self.written(message["content"])}
        return {**message, "role": self.observed} if message["role"] == "tool" else message

    def written(self, reply: str) -> str:
        """Return a reply in the model's form."""
        return to_line(reply) if self.line else reply

    def read(self, spoken: str) -> str:
        """Return what a model said, with a Hermes call."""
        return from_line(spoken) if self.line else spoken


def style_of(tokenizer: Any) -> CallStyle:
    """Return the style that a tokenizer's chat template asks for."""
    template = str(tokenizer.chat_template)
    told = template not in TEMPLATES.values() and ignores_tools(tokenizer)
    return CallStyle(template.startswith(LINE_MARK), told, "tool" if not told or has_tool_role(tokenizer) else "user")


def ignores_tools(tokenizer: Any) -> bool:
    """Return whether the chat template renders the same text with tools as without."""
    try:
        return rendered(tokenizer, _PROBE, [_PROBE_TOOL]) == rendered(tokenizer, _PROBE)
    except Exception:  # noqa: BLE001  a template may raise any exception; it is reported where it is used
        return False


def has_tool_role(tokenizer: Any) -> bool:
    """Return whether the chat template mentions the role ``tool``; one that does not renders it as an unknown role."""
    return "tool" in str(tokenizer.chat_template)


def with_syntax(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], form: CallForm) -> list[Message]:
    """Return the messages with the calls' syntax at the end of the system message, which is added if missing."""
    text = _syntax(tools, form)
    first = messages[0] if messages else None
    if first is not None and first["role"] == "system":
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def to_line(text: str) -> str:
    """Return a reply with its Hermes call as one line; text that would not come back the same is returned unchanged."""
    parsed = parse_text(text)
    if parsed.call is None or parsed.call.choice not in CHOICES:
        return text
    head = f"{parsed.thought}\n" if parsed.thought else ""
    line = f"{head}{parsed.call.choice}: {parsed.call.content}"
    return line if from_line(line) == text else text


def from_line(text: str) -> str:
    """Return a reply whose call is a line as the Hermes call; any other text is returned unchanged."""
    found = None if "<tool_call>" in text else _LINE.search(text)
    if found is None:
        return text
    return render_call(InteractCall(found[1], text[found.end() :]), text[: found.start()].rstrip("\n"))


def set_form(model: Any, tokenizer: Any, form: CallForm) -> None:
    """Make a model and its tokenizer write calls in this form; those that already do are left as they are.

    The tokenizer that is saved with a checkpoint says its form, so that nobody has to be told.
    """
    if form == "lean" and not str(tokenizer.eos_token).startswith(call_parts()[2]):
        _add_lean(model, tokenizer)
    if form == "line" and not tokenizer.chat_template.startswith(LINE_MARK):
        _simplify(tokenizer)
        tokenizer.chat_template = LINE_MARK + tokenizer.chat_template


def choices_of(function: Mapping[str, Any]) -> list[str]:
    """Return the choices of the interact tool as a function's schema lists them; none where it lists no choices."""
    try:
        choices = function["parameters"]["properties"]["choice"]["enum"]
    except (KeyError, TypeError):
        return []
    return [str(choice) for choice in choices] if isinstance(choices, list) else []


def _syntax(tools: Sequence[Mapping[str, Any]], form: CallForm) -> str:
    functions = [tool.get("function", tool) for tool in tools]
    choices = choices_of(functions[0])
    if [function.get("name") for function in functions] != [TOOL_NAME] or not choices:
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        return (
            f"# Tools\n<tools>\n{listed}\n</tools>\nMake a call like this:\n<tool_call>\n"
            '{"name": NAME, "arguments": {...}}\n</tool_call>\nWrite nothing after it.'
        )
    names = " or ".join([", ".join(choices[:-1]), choices[-1]] if choices[1:] else choices)
    if form == "line":
        return f"# Calls\nWrite a call as one line: {names}, then a colon and the content. Example:\n{choices[0]}: ..."
    example = render_call(InteractCall(choices[0], "..."))
    return f"# Calls\nWrite a call like this, with choice {names}:\n{example}\nWrite nothing after it."


def _add_lean(model: Any, tokenizer: Any) -> None:
    """Add the fixed parts of a call as tokens. A new embedding is the mean of the embeddings of the tokens that it replaces."""
    closing = str(tokenizer.eos_token)
    head, middle, tail = call_parts()
    heads, end = [f"{head}{choice}{middle}" for choice in CHOICES], tail + closing
    replaced = {text: tokenizer.encode(text, add_special_tokens=False) for text in (*heads, end)}
    tokenizer.add_special_tokens({"eos_token": AddedToken(end, normalized=False, special=True)})
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in heads])
    _simplify(tokenizer)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    old = [part.weight.detach().clone() for part in (model.get_input_embeddings(), model.get_output_embeddings())]
    model.resize_token_embeddings(max(len(tokenizer), len(old[0])), mean_resizing=False)
    new = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    with torch.no_grad():
        for before, after in list(zip(old, new, strict=True))[: 1 if tied else 2]:
            for text, ids in replaced.items():
                after[tokenizer.convert_tokens_to_ids(text)] = before[ids].float().mean(0).to(after.dtype)
    for config in (model.config, model.generation_config):
        config.eos_token_id = tokenizer.eos_token_id


def _simplify(tokenizer: Any) -> None:
    """Replace a ChatML template that ignores tools by `PLAIN`, which lacks the default system message."""
    known = tokenizer.get_vocab()
    if START in known and END in known and ignores_tools(tokenizer) and not has_tool_role(tokenizer):
        tokenizer.chat_template = PLAIN
