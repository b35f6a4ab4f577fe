"""Conversations of another tool in one form, and the helpers that every reader uses to build them.

None means that the file does not say. It is stored as null and never as zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import orjson

from userrl_core.errors import ConfigError
from userrl_core.seeding import content_hash

MESSAGE = "message"
"""The choice of a turn without a tool call."""
ENDED = "ended"
"""The stop reason of a conversation whose file gives no reason that we have a word for."""
NOT_FINITE = frozenset(sign + word for sign in ("", "+", "-") for word in ("nan", "inf", "infinity"))
"""Numbers that are not finite, as other tools write them as text."""
NOT_A_NUMBER = "is not a finite number"
EMPTY = "the attempt has no messages"
SUCCESS_SCORE = 1.0
"""The lowest score that counts as success, as in tau-bench."""


@dataclass(slots=True)
class ForeignCall:
    """Tokens and cost of a served model: one call, or all calls of a role where the file gives only their sum."""

    role: str
    model: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float | None = None
    price: float | None = None


@dataclass(slots=True)
class ForeignTurn:
    """One agent message and the messages that follow it. choice: the name of the first tool called, or `MESSAGE`."""

    choice: str
    content: str
    thought: str
    message: str
    observation: str = ""
    reward: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float | None = None
    info: dict[str, Any] = field(default_factory=dict)
    calls: list[ForeignCall] = field(default_factory=list)


@dataclass(slots=True)
class ForeignConversation:
    """One conversation. where: its place in the file, for error messages.

    attempt: None where the file does not number attempts; they are then counted. payload: the task as the file
    describes it; its hash is the task's version. policy: the agent's model, "" where the file does not name it. score:
    None where the file has no score. info: further facts, stored with the last turn. prompt_tokens,
    completion_tokens, seconds: sums that the file gives; None uses the sums over turns, if all turns have them.
    """

    where: str
    gym: str
    task_id: str
    payload: Mapping[str, Any]
    opening: list[dict[str, str]]
    turns: list[ForeignTurn]
    score: float | None = None
    attempt: int | None = None
    policy: str = ""
    user: str | None = None
    seed: int | None = None
    stop_reason: str = ENDED
    reject_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds: float | None = None
    info: dict[str, Any] = field(default_factory=dict)
    calls: list[ForeignCall] = field(default_factory=list)

    @property
    def ending(self) -> str:
        """The stop reason; ``success`` for a full score."""
        return "success" if self.score is not None and self.score >= SUCCESS_SCORE - 1e-6 else self.stop_reason

    def add_sum_of_calls(self) -> None:
        """Store the tokens of the whole conversation as one call of the agent, if the file gives them."""
        if self.prompt_tokens is not None or self.completion_tokens is not None:
            self.calls.append(ForeignCall("policy", self.policy, self.prompt_tokens, self.completion_tokens))


def broken(where: str, problem: str) -> NoReturn:
    """Raise the error of a file that cannot be imported. problem: the rest of the sentence."""
    raise ConfigError("import.broken_file", f"{where}: {problem}. Nothing was imported.")


def mapping(value: Any, where: str, name: str) -> dict[str, Any]:
    """Return a JSON object, or raise ConfigError. name: its name in the message."""
    if not isinstance(value, dict):
        broken(where, f"{name} is not a JSON object")
    return value


def sequence(value: Any, where: str, name: str) -> list[Any]:
    """Return a JSON list, [] for null, or raise ConfigError."""
    if value is None:
        return []
    if not isinstance(value, list):
        broken(where, f"{name} is not a list")
    return value


def number(value: Any, where: str, name: str) -> float | None:
    """Return a finite number, or raise ConfigError. None for null and for a number that is not finite (`scored` tells
    them apart).
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in NOT_FINITE):
        return None
    if not isinstance(value, (int, float)):
        broken(where, f"{name} is not a number")
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def scored(value: Any, where: str, name: str, failure: str | None = None) -> tuple[float | None, str | None]:
    """Return a score, and else the reason why there is none. failure: the reason why the attempt has no score, whatever
    the file says. Raises ConfigError.
    """
    score = number(value, where, name)
    if failure is not None:
        return None, failure
    if score is not None:
        return score, None
    return None, f"the file has no {name}" if value is None else f"the {name} {NOT_A_NUMBER}"


def count(value: Any, where: str, name: str, *, most: int = 2**31 - 1) -> int | None:
    """Return a whole number from 0 to ``most``, None for null, or raise ConfigError."""
    result = number(value, where, name)
    if result is None:
        return None
    if not result.is_integer() or not 0 <= int(value) <= most:
        broken(where, f"{name} is not a whole number from 0 to {most}")
    return int(value)


def name_of(value: Any) -> str:
    """Return an identifier as text: a string or a number of the file; "" for anything else."""
    return value if isinstance(value, str) else "" if value is None or isinstance(value, bool) else str(value)


def text_of(content: Any) -> str:
    """Return a message's content as text. A part that is not text is shown by its kind, such as ``[image]``."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json_text(content)
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            parts.append(part["text"])
        elif isinstance(part, dict) and part.get("type") != "reasoning":
            parts.append(f"[{name_of(part.get('type')) or 'part'}]")
    return "\n".join(parts)


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return the reasoning that a message carries apart from its text, or ""."""
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str):
            return str(message[key])
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part.get("reasoning") for part in parts if isinstance(part, dict) and part.get("type") == "reasoning"]
    return "\n".join(text for text in texts if isinstance(text, str))


def json_text(value: Any) -> str:
    """Return the JSON text of a value that was read from JSON."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # a lone surrogate, or an integer beyond 64 bits
        return str(value).encode("utf-8", "replace").decode()


def called(call: Any, where: str) -> tuple[str, str]:
    """Return the name and the arguments (JSON text) of a tool call in any of the formats' forms."""
    call = mapping(call, where, "a tool call")
    function = call.get("function")
    holder = function if isinstance(function, dict) else call
    name = function if isinstance(function, str) else holder.get("name")
    if not isinstance(name, str):
        broken(where, "a tool call has no name")
    arguments = holder.get("arguments", holder.get("args"))
    return name, arguments if isinstance(arguments, str) else json_text({} if arguments is None else arguments)


def agent_turn(message: Mapping[str, Any], where: str) -> ForeignTurn:
    """Return an agent's message as a turn. Tool calls follow its text between tags, as in our own turns."""
    text, calls = text_of(message.get("content")), sequence(message.get("tool_calls"), where, "tool_calls")
    thought = reasoning_of(message)
    if not calls:
        return ForeignTurn(MESSAGE, text, thought, text)
    pairs = [called(call, where) for call in calls]
    tags = [
        f'<tool_call>\n{{"name": {json_text(name)}, "arguments": {arguments or "{}"}}}\n</tool_call>'
        for name, arguments in pairs
    ]
    name, arguments = pairs[0]
    return ForeignTurn(
        name, arguments, "\n".join(filter(None, (thought, text))), "\n".join(filter(None, (text, *tags)))
    )


@dataclass(slots=True)
class Chat:
    """A chat divided into the opening and the agent's turns. sources: the message that each turn was made from."""

    opening: list[dict[str, str]]
    turns: list[ForeignTurn]
    sources: list[Mapping[str, Any]]


def divided(messages: Sequence[Any], where: str, *, prompt: int = 0) -> Chat:
    """Divide messages at the agent's messages. prompt: messages at the beginning that are not the agent's own.

    Raises ConfigError for a message that is not an object or has no role.
    """
    chat = Chat([], [], [])
    replies: list[Mapping[str, Any]] = []
    for position, item in enumerate(messages):
        message = mapping(item, where, f"message {position + 1}")
        role = message.get("role")
        if not isinstance(role, str):
            broken(where, f"message {position + 1} has no role")
        if role == "assistant" and position >= prompt:
            _observe(chat, replies, where)
            chat.turns.append(agent_turn(message, where))
            chat.sources.append(message)
        elif chat.turns:
            replies.append(message)
        else:
            chat.opening.append({"role": role, "content": _with_calls(message, where)})
    _observe(chat, replies, where)
    return chat


def task_of_opening(opening: Iterable[Mapping[str, str]]) -> str:
    """Return an id for a chat without a task id: a hash of its opening, so that attempts at one prompt share it."""
    return content_hash([dict(message) for message in opening])[:16]


def _observe(chat: Chat, replies: list[Mapping[str, Any]], where: str) -> None:
    """Store the replies to the last turn as its observation, and clear them."""
    if chat.turns and replies:
        texts = [_with_calls(message, where) for message in replies]
        if len(replies) > 1:
            texts = [f"{message['role']}: {text}" for message, text in zip(replies, texts, strict=True)]
        chat.turns[-1].observation = "\n".join(texts)
    replies.clear()


def _with_calls(message: Mapping[str, Any], where: str) -> str:
    """Return a message's text with its tool calls; a simulated user may have tools too."""
    return agent_turn(message, where).message if message.get("tool_calls") else text_of(message.get("content"))
