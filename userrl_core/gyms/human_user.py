"""A person as a gym's user. The questions to the person are in each gym's ``human_user.py``.

As in the paper's study (appendix F), the person sees the ground truth, judges the agent's questions and answers
against it, and is asked not to reveal it. Input blocks the thread, so a person answers one conversation at a time.
Each answer is a row of `model_calls` with its duration in seconds, like the reply of a served user.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from userrl_core.errors import UserError
from userrl_core.records import ModelCall, Task

Answer = Literal["No", "Maybe", "Yes"]
_ANSWERS: dict[str, Answer] = {"y": "Yes", "yes": "Yes", "n": "No", "no": "No", "m": "Maybe", "maybe": "Maybe"}
KEEP_QUIET = "Judge honestly against it, and do not give it away."


class Console:
    """A terminal for a person. ask: like ``input``. show: like ``print``.

    answered: callback that gets the duration of each answer in seconds.
    """

    def __init__(self, ask: Callable[[str], str] = input, show: Callable[[str], None] = print) -> None:
        self._ask = ask
        self._show = show
        self.answered: Callable[[float], None] = lambda seconds: None
        self._shown_once: set[str] = set()

    def show_once(self, text: str) -> None:
        """Show a text the first time only."""
        if text not in self._shown_once:
            self._shown_once.add(text)
            self._show(text)

    def show(self, text: str) -> None:
        """Show a text."""
        self._show(text)

    def line(self, prompt: str) -> str:
        """Read a non-empty line. Raises UserError at the end of the input."""
        began = time.perf_counter()
        while True:
            try:
                text = self._ask(prompt).strip()
            except EOFError:
                raise UserError("people.left", "The person at the terminal left.") from None
            if text:
                self.answered(time.perf_counter() - began)
                return text

    def call(self, choices: Sequence[str], ready: Mapping[str, Sequence[str]] | None = None) -> str:
        """Read the person's call as the agent, ``choice: content``. Raises EOFError at the end of the input.

        ready: contents that a page offers as buttons, by choice. A terminal does not show them.
        """
        return self._ask(f"{choices[0]}> " if len(choices) == 1 else f"({' | '.join(choices)}): ")

    def choose(self, prompt: str, options: Sequence[str]) -> int:
        """Read a choice, typed as its number or the beginning of its text. Return its index."""
        self._show("\n".join(f"  {i}. {text}" for i, text in enumerate(options, 1)))
        while True:
            typed = self.line(prompt).lower()
            if typed.isdecimal() and 1 <= int(typed) <= len(options):
                return int(typed) - 1
            matches = [i for i, text in enumerate(options) if text.lower() == typed]
            matches = matches or [i for i, text in enumerate(options) if text.lower().startswith(typed)]
            if len(matches) == 1:
                return matches[0]
            self._show(f"Type a number from 1 to {len(options)}.")

    def answer(self, prompt: str) -> Answer:
        """Read Yes, No or Maybe, typed as the word or its first letter."""
        while True:
            typed = self.line(f"{prompt} [y/n/m] ").lower()
            if typed in _ANSWERS:
                return _ANSWERS[typed]
            self._show("Type yes, no or maybe.")


class HumanUser:
    """Base class of the gyms' human users, with the task and the console."""

    def __init__(self, task: Task, rng: random.Random, *, console: Console | None = None) -> None:
        self.task = task
        self.console = console if console is not None else Console()
        self.ledger: list[ModelCall] = []
        self.console.answered = self._answered

    def _answered(self, seconds: float) -> None:
        self.ledger.append(ModelCall("user", "human", seconds=seconds, price=0.0))
