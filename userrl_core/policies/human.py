"""A person at the terminal as the agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from userrl_core.errors import PolicyError
from userrl_core.gyms.base import Gym
from userrl_core.interact import InteractCall, render_call
from userrl_core.policies.base import Session
from userrl_core.records import Message, PolicyReply


class HumanPolicy:
    """Shows the agent's messages and reads ``choice: content`` lines. ask: like ``input``. show: like ``print``."""

    name = "human"

    def __init__(self, ask: Callable[[str], str] = input, show: Callable[[str], None] = print) -> None:
        self._ask = ask
        self._show = show

    def session(self, gym: Gym[Any], seed: int) -> Session:
        """A session with the gym's choices."""
        return _HumanSession(gym.choices(), self._ask, self._show)


class _HumanSession:
    def __init__(self, choices: tuple[str, ...], ask: Callable[[str], str], show: Callable[[str], None]) -> None:
        self._choices = choices
        self._ask = ask
        self._show = show

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        """The person's call. Raises PolicyError when the input ends or the person types ``quit``."""
        for message in new:
            self._show(f"\n[{message['role']}] {message['content']}")
        return PolicyReply(text=render_call(self._read()))

    def _read(self) -> InteractCall:
        only = self._choices[0] if len(self._choices) == 1 else None
        prompt = f"{only}> " if only else f"({' | '.join(self._choices)}): "
        while True:
            try:
                line = self._ask(prompt).strip()
            except EOFError:
                raise PolicyError("The person at the terminal left.") from None
            if line.lower() in ("quit", "exit", "/quit"):
                raise PolicyError("The person at the terminal left.")
            head, colon, rest = line.partition(":")
            matches = [choice for choice in self._choices if colon and head and choice.startswith(head.strip().lower())]
            if len(matches) == 1:
                return InteractCall(matches[0], rest.strip())
            if only is not None and line:
                return InteractCall(only, line)
            if line:
                examples = " or ".join(f"'{choice}: ...'" for choice in self._choices)
                self._show(f"Type {examples} (the beginning of the word will do), or quit.")
