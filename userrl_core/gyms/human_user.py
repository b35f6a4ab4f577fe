"""A person at the terminal as a gym's user; what the person is asked lies in the gym's own ``human_user.py``.

As in the paper's study (appendix F) the person sees the ground truth, judges the agent's questions and answers against it,
and is asked not to reveal it. Reading blocks the process: a person answers one conversation at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from userrl_core.errors import UserError
from userrl_core.records import ModelCall, Task

Answer = Literal["No", "Maybe", "Yes"]
_ANSWERS: dict[str, Answer] = {"y": "Yes", "yes": "Yes", "n": "No", "no": "No", "m": "Maybe", "maybe": "Maybe"}
KEEP_QUIET = "Judge honestly against it, and do not give it away."


class Console:
    """Where the person reads and types. ask: like ``input``. show: like ``print``."""

    def __init__(self, ask: Callable[[str], str] = input, show: Callable[[str], None] = print) -> None:
        self._ask = ask
        self._show = show
        self._told: set[str] = set()

    def tell_once(self, text: str) -> None:
        """Show a text the first time it comes."""
        if text not in self._told:
            self._told.add(text)
            self._show(text)

    def show(self, text: str) -> None:
        """Show a text."""
        self._show(text)

    def line(self, prompt: str) -> str:
        """A line that is not empty. Raises UserError when the input ends."""
        while True:
            try:
                text = self._ask(prompt).strip()
            except EOFError:
                raise UserError("The person at the terminal left.") from None
            if text:
                return text

    def choose(self, prompt: str, among: Sequence[str]) -> int:
        """The index of one of several texts, typed as its number or its beginning."""
        self._show("\n".join(f"  {i}. {text}" for i, text in enumerate(among, 1)))
        while True:
            typed = self.line(prompt).lower()
            if typed.isdecimal() and 1 <= int(typed) <= len(among):
                return int(typed) - 1
            starts = [i for i, text in enumerate(among) if text.lower() == typed]
            starts = starts or [i for i, text in enumerate(among) if text.lower().startswith(typed)]
            if len(starts) == 1:
                return starts[0]
            self._show(f"Type a number from 1 to {len(among)}.")

    def answer(self, prompt: str) -> Answer:
        """Yes, No or Maybe, by word or first letter."""
        while True:
            typed = self.line(f"{prompt} [y/n/m] ").lower()
            if typed in _ANSWERS:
                return _ANSWERS[typed]
            self._show("Type yes, no or maybe.")


class HumanUser:
    """What every gym's human user holds: the task, and the console on which the person reads and types."""

    def __init__(self, task: Task, rng: random.Random, *, console: Console | None = None) -> None:
        self.task = task
        self.console = console if console is not None else Console()
        self.ledger: list[ModelCall] = []
