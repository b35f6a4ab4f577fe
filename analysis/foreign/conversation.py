"""Conversations of another tool in one form.

None means that the file does not say. It is stored as null and never as zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from userrl_core.chats.message import ROLES
from userrl_core.chats.values import NO_VALUE, number

MESSAGE = "message"
"""The choice of a turn without a tool call."""
ENDED = "ended"
"""The stop reason of a conversation whose file gives no reason that we have a word for."""
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
    number of parts and fields, by name, that are not stored. silent: that no message has words; else "".
    elsewhere: further fields that may hold the agent's words. file: what the file says of all its conversations, complete
    when the last one has been read.
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
    silent: str = ""
    elsewhere: Collection[str] = ()
    file: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take the score from an attempt whose agent says nothing that we could find: no mean may count it."""
        if reason := self.silent or self.misread:
            self.score, self.reject_reason = None, reason
        elif not self.opening and not self.turns and self.reject_reason is None:
            self.score, self.reject_reason = None, EMPTY

    @property
    def misread(self) -> str:
        """Why a conversation without the agent's turns may be one with them: it has roles that we do not know, or other
        fields; else "".
        """
        roles = dict.fromkeys(message["role"] for message in self.opening if message["role"] not in ROLES)
        if self.turns or not self.opening or not (roles or self.elsewhere):
            return ""
        problem = f"and other roles are unknown: {', '.join(roles)}"
        if not roles:
            problem = f"but there are other fields: {', '.join(self.elsewhere)}"
        return f"no message has the role assistant, {problem}"

    @property
    def ending(self) -> str:
        """The stop reason; ``success`` for a full score."""
        return "success" if self.score is not None and self.score >= SUCCESS_SCORE - 1e-6 else self.stop_reason

    def keep(self, others: Mapping[str, Any], **scores: Any) -> None:
        """Store the fields of the conversation's row that have no column, as they are. scores: the score that the file
        gives, by its field. It is stored too if the conversation has none, whatever took it away.
        """
        rejected = given(scores, scores) if self.score is None else {}
        if others or rejected:
            self.info["row"] = {**others, **rejected}

    def count(self, values: Mapping[str, Any], read: Collection[str], prefix: str) -> None:
        """Count the fields of an inner object that are not read. prefix: the object's name and a dot.

        A total of tokens is read only beside its parts.
        """
        if given(values, read).keys() == {"total_tokens"}:
            read = ()
        self.unread.update(f"field {prefix}{key}" for key in other_fields(values, read))

    def add_sum_of_calls(self) -> None:
        """Store the tokens of the whole conversation as one call of the agent, if the file gives them."""
        if self.prompt_tokens is not None or self.completion_tokens is not None:
            self.calls.append(ForeignCall("policy", self.policy, self.prompt_tokens, self.completion_tokens))


def other_fields(values: Mapping[str, Any], read: Collection[str]) -> dict[str, Any]:
    """Return the fields with a value that are not among those that a reader reads by name."""
    return {key: value for key, value in values.items() if key not in read and value not in NO_VALUE}


def given(values: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the fields of these names that have a value. 0 and false are values."""
    return {key: values[key] for key in keys if values.get(key) not in NO_VALUE}


def reward_number(value: Any, where: str, name: str) -> float | None:
    """Return a reward as `number` does. True and false, which tests give, are 1 and 0."""
    return number(float(value) if isinstance(value, bool) else value, where, name)


def scored(value: Any, where: str, name: str, failure: str | None = None) -> tuple[float | None, str | None]:
    """Return a score, and else the reason why there is none. failure: the reason why the attempt has no score, whatever
    the file says. Raises ConfigError.
    """
    score = reward_number(value, where, name)
    if failure is not None:
        return None, failure
    if score is not None:
        return score, None
    return None, f"the file has no {name}" if value is None else f"the {name} {NOT_A_NUMBER}"
