"""Conversations of another tool in one form, and the helpers that every reader uses to build them.

None means that the file does not say. It is stored as null and never as zero.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import orjson

from userrl_core.errors import ConfigError

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
    completion_tokens, seconds: sums that the file gives; None uses the sums over turns, if all turns have them. unread:
    number of parts and fields, by name, that are not stored.
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
    unread: Counter[str] = field(default_factory=Counter)

    @property
    def ending(self) -> str:
        """The stop reason; ``success`` for a full score."""
        return "success" if self.score is not None and self.score >= SUCCESS_SCORE - 1e-6 else self.stop_reason

    def add_sum_of_calls(self) -> None:
        """Store the tokens of the whole conversation as one call of the agent, if the file gives them."""
        if self.prompt_tokens is not None or self.completion_tokens is not None:
            self.calls.append(ForeignCall("policy", self.policy, self.prompt_tokens, self.completion_tokens))


class BrokenFile(ConfigError):
    """A file that cannot be imported. fact: its place and the problem, for readers that do not import."""

    def __init__(self, code: str, fact: str) -> None:
        super().__init__(code, f"{fact} Nothing was imported.")
        self.fact = fact

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.fact)


def broken(where: str, problem: str) -> NoReturn:
    """Raise the error of a file that cannot be imported. problem: the rest of the sentence."""
    raise BrokenFile("import.broken_file", f"{where}: {problem}.")


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


def json_text(value: Any) -> str:
    """Return the JSON text of a value that was read from JSON."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # a lone surrogate, or an integer beyond 64 bits
        return str(value).encode("utf-8", "replace").decode()
