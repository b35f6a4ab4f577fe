"""One message of a chat, in any of the forms that other tools write, and its text for a model.

Read: OpenAI's content (text, null or parts), ``tool_calls``, the legacy ``function_call`` and ``refusal``; Anthropic's
parts (``text``, ``thinking``, ``tool_use``, ``tool_result``), also as Bedrock and the AI SDK name them; reasoning next to the
content. Import, supervised training and served models read messages here, so a call has one text in all three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from userrl_core.chats.order import CALLS, RESULTS, arranged, as_call, kind_of
from userrl_core.chats.values import NO_VALUE, broken, compact_json, mapping, name_of, sequence
from userrl_core.interact import parse_text, render_any_call
from userrl_core.records import Message

ROLES: Mapping[str, str] = {
    **{role: role for role in ("system", "user", "assistant", "tool")},
    "developer": "system",
    "function": "tool",
}
"""The roles of OpenAI's messages, and the roles that a model reads them as."""
MARKS = ("weight", "loss", "train")
"""Fields that leave a message out of the loss, with the value 0 or false (OpenAI, ShareGPT, AgentGym)."""
REASONING = ("reasoning_content", "reasoning", "thinking")
READ = frozenset(
    (*MARKS, *REASONING, "role", "content", "tool_calls", "function_call", "refusal", "audio", "name", "tool_call_id")
) | {"id", "type"}
"""The fields of a message that are read, and the ids that only connect messages."""
IDS = ("type", "id", "call_id", "tool_use_id", "toolUseId", "toolCallId", "index")
NAMES = ("name", "toolName")
ARGUMENTS = ("arguments", "args", "input")
CALL = frozenset((*IDS, *NAMES, *ARGUMENTS, "function", "custom"))
OUTPUTS = ("content", "output", "result", "response")
RESULT = frozenset((*IDS, *NAMES, *OUTPUTS))
"""The fields of parts, of calls and of tool results that are read, and the ids that only connect them."""
WORDS: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "content", "value"),
    "error-text": ("value",),
    "execution-denied": ("reason",),
    **dict.fromkeys(("reasoning", "thinking"), ("thinking", "reasoning", "text", "content")),
}
"""The keys of a part's words, by its kind. Other kinds have `text` or `refusal`. The AI SDK wraps a tool's result in one."""
TEXTS = frozenset((*REASONING, "refusal", "name"))
"""Fields that are read where they are text. A recording (``audio``) is read where it is an object."""


@dataclass(slots=True)
class ChatMessage:
    """One message. A message of Anthropic may be several: its tool results are messages of the role ``tool``.

    thought: reasoning apart from the text. calls: name and arguments (JSON text) of each call. unread: number of parts
    by kind that are not text. The text shows such a part as ``[kind]``. fields: number of fields of parts and calls, by name,
    that are not read.
    """

    role: str
    text: str = ""
    thought: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)

    @property
    def spoken(self) -> str:
        """The text, and after it the calls as Hermes text."""
        return "\n".join([*[self.text] * bool(self.text), *(render_any_call(*call) for call in self.calls)])

    @property
    def reply(self) -> str:
        """What a model writes: its reasoning between tags as in Qwen3, the text and the calls."""
        return f"<think>\n{self.thought}\n</think>\n\n{self.spoken}" if self.thought else self.spoken


def read_message(message: Mapping[str, Any], where: str) -> list[ChatMessage]:
    """Return a message as one or more messages. Raises BrokenFile for one without a role and for an unreadable call."""
    role = message.get("role")
    if not isinstance(role, str):
        broken(where, "it has no role")
    messages = _of_parts(role, _parts(message.get("content")), where)
    last = messages[-1]
    refusal, audio = message.get("refusal"), message.get("audio")
    if isinstance(refusal, str) and refusal not in last.text:
        _add(last, refusal)
    if isinstance(audio, dict):
        last.unread["audio"] += 1
        _add(last, "[audio]")
    reasoning = [str(message[key]) for key in REASONING if isinstance(message.get(key), str)]
    last.thought = "\n".join(dict.fromkeys(filter(None, (*reasoning, last.thought))))
    for call in sequence(message.get("tool_calls"), where, "tool_calls"):
        _add_call(last, call, where)
    if message.get("function_call") is not None:
        _add_call(last, message["function_call"], where)
    return [part for part in messages if part.role != role or part.text or part.thought or part.calls] or messages[:1]


def text_of(content: Any) -> str:
    """Return a message's content as text. A part that is not text is shown by its kind, such as ``[image]``."""
    return "\n".join(message.text for message in _of_parts("", _parts(content), "") if message.text)


def is_read(key: str, value: Any) -> bool:
    """Return whether a field of a message is read, or has no value."""
    kind = str if key in TEXTS else dict if key == "audio" else object
    return value in NO_VALUE or (key in READ and isinstance(value, kind))


def model_messages(messages: Sequence[Any], where: str, unread: Counter[str] | None = None) -> list[Message]:
    """Return messages as a model reads them: roles system, user, assistant and tool, and content as text with the calls.

    A user's message right after a call of our tool is the answer to the call, so its role is ``tool``, as in rollouts. A
    reply that is left out of the loss has ``train: False``. unread: counts the fields that are not read. Raises
    BrokenFile for a message that cannot be read as text.
    """
    plain: list[Message] = []
    for index, item in enumerate(arranged(messages)):
        location = f"{where}: messages[{index}]"
        message = mapping(item, location, "the message")
        role = ROLES.get(str(message.get("role")))
        if role is None:
            broken(location, f"it has role {message.get('role')!r}. Use {', '.join(ROLES)}")
        trained = _trained(message, location)
        if unread is not None:
            unread.update(_unread(message, role))
        for part in read_message({**message, "role": role}, location):
            if unread is not None:
                unread.update(part.fields)
            plain.append(_plain(part, message, location, plain, trained=trained))
    return plain


def _plain(
    part: ChatMessage, message: Mapping[str, Any], location: str, before: Sequence[Message], *, trained: bool
) -> Message:
    _refuse_parts(part, message, location)
    answers = part.role == "user" and bool(before) and before[-1]["role"] == "assistant"
    role = "tool" if answers and parse_text(before[-1]["content"]).call is not None else part.role
    plain: Message = {"role": role, "content": part.reply if role == "assistant" else part.spoken}
    # A template may read a name; the path of a recording belongs to our own chats.
    plain |= {key: message[key] for key in ("name", "audio") if isinstance(message.get(key), str) and message[key]}
    return plain if trained or role != "assistant" else {**plain, "train": False}


def _refuse_parts(part: ChatMessage, message: Mapping[str, Any], location: str) -> None:
    """Raise BrokenFile for a message that has no text, or parts that no model of ours reads."""
    if part.unread:
        broken(location, f"it has a part of kind {next(iter(part.unread))} without a text that is read. Remove it")
    content = message.get("content")
    empty = content in (None, []) and not part.reply and part.role != "tool"
    if empty or not (content is None or isinstance(content, str | list) or _is_part(content)):
        broken(location, "it needs a text in 'content', or a call")


def _trained(message: Mapping[str, Any], location: str) -> bool:
    marks = {key: message[key] for key in MARKS if message.get(key) is not None}
    for key, value in marks.items():
        if value not in (0, 1):  # true and false are equal to them
            broken(
                location,
                f"its {key} is {value!r}. Use 0 or false to leave it out of the loss, 1 or true to train on it",
            )
    return all(marks.values())


def _unread(message: Mapping[str, Any], role: str) -> Iterator[str]:
    """Yield the fields with a value that are not read. Nothing but replies can be trained on."""
    for key, value in message.items():
        misplaced_mark = key in MARKS and role != "assistant" and value
        path = key == "audio" and isinstance(value, str)  # of our own chats
        if misplaced_mark or not (path or is_read(key, value)):
            yield key


def _parts(content: Any) -> list[Any]:
    if content is None:
        return []
    if isinstance(content, dict) and content.get("type") == "content" and isinstance(content.get("value"), list):
        content = content["value"]  # a result of the AI SDK
    if isinstance(content, list):
        return content
    return [content] if isinstance(content, str) or _is_part(content) else [compact_json(content)]


def _is_part(content: Any) -> bool:
    return isinstance(content, dict) and isinstance(content.get("type"), str)


def _of_parts(role: str, parts: Sequence[Any], where: str) -> list[ChatMessage]:
    """Return the parts of a message as messages, in their order: a new one at each tool result, and after it."""
    messages = [ChatMessage(role)]
    for part in parts:
        kind, body = kind_of(part)
        if kind.endswith(RESULTS):
            messages += [_result(body, where), ChatMessage(role)]
        elif kind.endswith(CALLS):
            _add_call(messages[-1], body, where)
        else:
            _read_part(messages[-1], part)
    return messages


def _result(part: Mapping[str, Any], where: str) -> ChatMessage:
    """Return the result of a tool. That it is an error is said by its text."""
    result = ChatMessage("tool", fields=_others(part, RESULT))
    outputs = [part[key] for key in OUTPUTS if part.get(key) is not None]
    for inner in (inner for output in outputs for inner in _parts(output)):
        _read_part(result, inner)
    return result


def _read_part(message: ChatMessage, part: Any) -> None:
    if isinstance(part, str):
        _add(message, part)
    elif isinstance(part, dict):
        kind = name_of(part.get("type")) or next(
            (key for key, value in part.items() if isinstance(value, dict)), "part"
        )
        key = next((key for key in WORDS.get(kind, ("text", "refusal")) if isinstance(part.get(key), str)), None)
        if kind in ("json", "error-json") and key is None:  # a result of Bedrock or of the AI SDK
            key = "json" if "json" in part else "value"
            _add(message, compact_json(part.get(key)))
        elif key is None:
            message.unread[kind] += 1
            _add(message, f"[{kind}]")
        elif kind in ("reasoning", "thinking"):
            message.thought = "\n".join(filter(None, (message.thought, part[key])))
        else:
            _add(message, part[key])
        if key is not None:
            message.fields += _others(part, ("type", "id", key))
    else:
        message.unread["part"] += 1
        _add(message, compact_json(part))


def _read_call(call: Any, where: str) -> tuple[tuple[str, str], Counter[str]]:
    """Return a call's name and arguments (JSON text) in any of the formats' forms, and its fields that are not read.

    They are fields of its function or of the call itself. Another name, and arguments besides the first ones, are not read.
    """
    call = mapping(as_call(call), where, "a tool call")
    function, custom = call.get("function"), call.get("custom")
    bodies = [body for body in (function, custom, call) if isinstance(body, dict)]
    fields = [(key, body[key]) for body in bodies for key in (*NAMES, *ARGUMENTS) if body.get(key) is not None]
    names = [("function", function)] * isinstance(function, str) + [item for item in fields if item[0] in NAMES]
    names += [("custom", custom)] * isinstance(custom, str)
    name = next((name for _, name in names if name not in NO_VALUE), names[0][1] if names else None)
    if not isinstance(name, str):
        broken(where, "a tool call has no name")
    values = [item for item in fields if item[0] in ARGUMENTS]
    arguments: Any = values[0][1] if values else {}
    if arguments in NO_VALUE:
        arguments = next((value for _, value in values if value and isinstance(value, dict | str)), arguments)
    unread = Counter(key for key, value in (*names, *values) if value not in (*NO_VALUE, name, arguments))
    for body in bodies:
        unread += _others(body, CALL)
    return (name, (arguments or "{}") if isinstance(arguments, str) else compact_json(arguments)), unread


def _add_call(message: ChatMessage, call: Any, where: str) -> None:
    name_and_arguments, unread = _read_call(call, where)
    message.calls.append(name_and_arguments)
    message.fields += unread


def _others(values: Mapping[str, Any], read: Collection[str]) -> Counter[str]:
    return Counter(key for key, value in values.items() if key not in read and value not in NO_VALUE)


def _add(message: ChatMessage, text: str) -> None:
    message.text = f"{message.text}\n{text}" if message.text else text
