"""A recorded conversation in one form, whichever tool recorded it.

Our own turns have the choices action, search and answer. An imported turn has the name of the tool it calls, or ``message``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from userrl_core.gyms.tau.stopping import STOP_TOKEN
from userrl_core.records import Task, Trajectory, Turn

TALK = ("action", "message")
"""The choices whose content goes to the user."""
_SPEAKER = re.compile(r"^(system|developer|user|tool|function)(?: [^:\n]+)?: ", re.MULTILINE)
"""Who said a part of an observation with several speakers, as `analysis.foreign.dialogue` writes it."""


@dataclass(frozen=True, slots=True)
class Message:
    """Words of the user or the agent. turn: 0 for the opening."""

    speaker: str
    text: str
    turn: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of a user and an agent.

    opening: the user's first words, "" if the gym wrote them. stopped: the user ended the conversation. solved: the task was
    solved. ending: the stop reason. key: names the conversation in reports. policy, user: names of both sides, "" if unknown.
    """

    task: Task
    key: str
    opening: str
    turns: tuple[Turn, ...]
    stopped: bool
    solved: bool
    score: float | None
    ending: str
    policy: str = ""
    user: str = ""

    def messages(self) -> Iterator[Message]:
        """Yield the words of both sides in order, without stop tokens."""
        if self.opening:
            yield Message("user", self.opening, 0)
        for turn in self.turns:
            if turn.choice in TALK:
                yield Message("agent", turn.content or "", turn.number)
                if reply := words_of(turn.observation):
                    yield Message("user", reply, turn.number)

    def utterances(self) -> list[str]:
        """Return the user's words, one text per turn. Parting words with a stop token do not count."""
        user_messages = [message for message in self.messages() if message.speaker == "user"]
        parting = self.stopped and user_messages and user_messages[-1].turn == self.turns[-1].number
        return [message.text for message in (user_messages[:-1] if parting else user_messages)]


def conversation(trajectory: Trajectory, key: str = "") -> Conversation:
    """Return a stored trajectory as a conversation."""
    turns = tuple(trajectory.turns)
    last = turns[-1] if turns else None
    by_token = last is not None and last.choice in TALK and bool(STOP_TOKEN.search(last.observation))
    by_gym = last is not None and last.choice == "action" and "writes_right" in last.info
    return Conversation(
        trajectory.task,
        key or f"{trajectory.task.id}/{trajectory.attempt}",
        _opening(trajectory),
        turns,
        by_token or by_gym,
        trajectory.stop_reason == "success",
        trajectory.score,
        str(trajectory.stop_reason),
        trajectory.context.policy or "",
        trajectory.user or "",
    )


def words_of(observation: str) -> str:
    """Return a user's words without stop tokens. Of several speakers, the words of a tool or a developer are left out."""
    reply = observation or ""
    if _SPEAKER.match(reply):
        _, *parts = _SPEAKER.split(reply)
        reply = "".join(text for speaker, text in zip(parts[::2], parts[1::2], strict=True) if speaker == "user")
    return STOP_TOKEN.sub("", reply).strip()


def imported_call(turn: Turn) -> tuple[str, dict[str, Any]] | None:
    """Return the call of an imported turn, or None for a message or unreadable arguments."""
    if turn.choice is None or turn.choice in (*TALK, "search", "answer"):
        return None
    try:
        arguments = json.loads(turn.content or "{}")
    except (ValueError, RecursionError):
        return None
    return (turn.choice, arguments) if isinstance(arguments, dict) else None


def _opening(trajectory: Trajectory) -> str:
    """Return the user's own first words. In our gyms the gym writes them, so they do not count."""
    if not trajectory.task.source.startswith("imported"):
        return ""
    texts = [str(message["content"]) for message in trajectory.messages if message["role"] == "user"]
    return words_of(texts[-1]) if texts else ""
