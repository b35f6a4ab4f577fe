"""A policy for a person as the agent."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from userrl_core.errors import PolicyError
from userrl_core.gyms.base import Gym
from userrl_core.gyms.human_user import Console
from userrl_core.interact import InteractCall, render_call
from userrl_core.policies.base import Session
from userrl_core.records import Message, PolicyReply

_BRACKETED = re.compile(r"\[\s*(\w+)\s*\]\s*:?\s*(.*)", re.DOTALL)


class HumanPolicy:
    """A person at a console, who reads the messages and types ``choice: content`` (or ``[choice] content``) lines."""

    name = "human"

    def __init__(self, console: Console | None = None) -> None:
        self._console = console if console is not None else Console()

    def session(self, gym: Gym[Any], seed: int) -> Session:
        """Return a session with the gym's choices."""
        return _HumanSession(gym, self._console)


class _HumanSession:
    def __init__(self, gym: Gym[Any], console: Console) -> None:
        self._gym = gym
        self._choices = gym.choices()
        self._console = console

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        """Return the person's call. Raises PolicyError when the input ends or the person types ``quit``."""
        for message in new:
            if message["role"] == "system":  # it tells a model how to write a call
                self._console.show(instructions(self._gym))
            else:
                self._console.show(f"\n[{message['role']}] {readable(str(message['content']))}")
        return PolicyReply(text=render_call(self._read()))

    def _read(self) -> InteractCall:
        only = self._choices[0] if len(self._choices) == 1 else None
        while True:
            try:
                line = self._console.call(self._choices, self._gym.ready()).strip()
            except EOFError:
                raise PolicyError("people.left", "The person at the terminal left.") from None
            if line.lower() in ("quit", "exit", "/quit"):
                raise PolicyError("people.left", "The person at the terminal left.")
            bracketed = _BRACKETED.fullmatch(line)
            head, colon, rest = (bracketed[1], ":", bracketed[2]) if bracketed else line.partition(":")
            matches = [choice for choice in self._choices if colon and head and choice.startswith(head.strip().lower())]
            if len(matches) == 1:
                return InteractCall(matches[0], rest.strip())
            if only is not None and line:
                return InteractCall(only, line)
            if line:
                examples = " or ".join(f"'{choice}: ...'" for choice in self._choices)
                self._console.show(f"Type {examples} (the beginning of the word will do), or quit.")


def instructions(gym: Gym[Any]) -> str:
    """Return the gym's goal and choices, for a person."""
    return "\n".join([gym.goal, *(f"  {choice}: {gym.help_for(choice)}" for choice in gym.choices())]).strip()


def readable(text: str) -> str:
    """Return an observation for a person: a line that is a JSON object, such as a search result, becomes plain words."""
    return "\n".join(_words(line) for line in text.split("\n"))


def _words(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    headline = {key: fields.pop(key) for key in ("id", "name", "cost") if key in fields}
    details = [f"{key.replace('_', ' ')} {detail}" for key, value in fields.items() if (detail := _said(value))]
    return "  ".join(str(value) for value in headline.values()) + ("\n      " + "; ".join(details) if details else "")


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {inner}" for key, inner in value.items() if inner is not None)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
