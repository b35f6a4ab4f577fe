"""The console of a person at the page: a conversation's thread asks, and the page shows the question and takes the answer."""

from __future__ import annotations

import queue
import re
import time
from collections.abc import Mapping, Sequence

from userrl_core.gyms.human_user import Console

IDLE_SECONDS = 1_800.0
"""Seconds without an answer after which a conversation ends without a score."""

LABEL = 25
"""A question longer than this stays visible above its answer."""

SAID = {
    "y": "Yes", "n": "No", "m": "Maybe", "0": "0: not at all", "0.5": "½: in part", "1": "1: fully",
}  # fmt: skip
"""Button labels for answers that are a letter or a number."""

_CHOICES = re.compile(r"\[([^\[\]]+/[^\[\]]+)\]\s*$")


class PageConsole(Console):
    """A console whose lines go to a page and whose answers come from it. The conversation's thread uses it; the page
    reads it.
    """

    def __init__(self) -> None:
        super().__init__(self._exchange, self._say)
        self.lines: list[tuple[str, str]] = []
        """Lines in order, as (kind, text); kind is ``note`` (shown to the person) or ``said`` (typed by the person)."""
        self.prompt: str | None = None
        """The current question. None while the other side works."""
        self.options: Sequence[str] = ()
        """Answers to choose from. Empty if any text is allowed."""
        self.calls: Mapping[str, Sequence[str]] = {}
        """The choices of a person who plays the agent, with contents to choose from. Empty for any other question."""
        self._answers: queue.Queue[str | None] = queue.Queue()

    def call(self, choices: Sequence[str], ready: Mapping[str, Sequence[str]] | None = None) -> str:
        """Ask the person for the agent's call, with a button for each choice and each ready content."""
        self.calls = {choice: list((ready or {}).get(choice, ())) for choice in choices}
        try:
            return self._exchange("Your turn", keep=False)
        finally:
            self.calls = {}

    def choose(self, prompt: str, options: Sequence[str]) -> int:
        """Ask the person to choose an option with a button."""
        began = time.perf_counter()
        answer = ""
        while answer not in options:
            answer = self._exchange(prompt, options)
        self.answered(time.perf_counter() - began)
        return list(options).index(answer)

    def put(self, answer: str | None) -> None:
        """Take an answer from the page. None means that the person leaves."""
        self._answers.put(answer)

    def _exchange(self, prompt: str, options: Sequence[str] = (), *, keep: bool = True) -> str:
        listed = _CHOICES.search(prompt)
        if listed and not options:
            options = listed[1].split("/")
        self.options, self.prompt = options, prompt[: listed.start()] if listed else prompt
        try:
            answer = self._answers.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            answer = None
        answered_prompt, self.prompt, self.options = self.prompt, None, ()
        if answer is None:
            raise EOFError
        if keep and len(answered_prompt) > LABEL:
            self.lines.append(("note", answered_prompt.strip()))
        self.lines.append(("said", SAID.get(answer, answer) if options else answer))
        return answer

    def _say(self, text: str) -> None:
        self.lines.append(("note", text.strip("\n")))
