"""A person at the terminal as the user of Turtle, Telepathy, Persuade and Intention.

As in the paper's study (appendix F) the person sees the ground truth, judges the agent's questions and answers against it,
and is asked not to reveal it. Reading blocks the process: a person answers one conversation at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

from userrl_core.errors import UserError
from userrl_core.gyms.intention import Detail, Exchange, details_of
from userrl_core.gyms.persuade import STANCES, Verdict
from userrl_core.records import ModelCall, Task
from userrl_core.users.rule.stems import normalise

Answer = Literal["No", "Maybe", "Yes"]
_ANSWERS: dict[str, Answer] = {"y": "Yes", "yes": "Yes", "n": "No", "no": "No", "m": "Maybe", "maybe": "Maybe"}
_GRADES = {"0": 0.0, "none": 0.0, "0.5": 0.5, ".5": 0.5, "half": 0.5, "1": 1.0, "full": 1.0}
_KEEP_QUIET = "Judge honestly against it, and do not give it away."


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


class _Human:
    def __init__(self, task: Task, rng: random.Random, *, console: Console | None = None) -> None:
        self.task = task
        self.console = console if console is not None else Console()
        self.ledger: list[ModelCall] = []


class HumanTelepathyUser(_Human):
    """Answers about the entity, and judges guesses; a guess that is the entity's name letter by letter is not asked about."""

    async def reply(self, question: str) -> Answer:
        """Yes, No or Maybe."""
        self._truth()
        return self.console.answer(f"The agent asks: {question}\n")

    async def matches(self, guess: str) -> bool:
        """Whether the guess names the entity."""
        self._truth()
        if normalise(guess) == normalise(str(self.task.payload["title"])):
            return True
        while True:
            verdict = self.console.answer(f"The agent guesses: {guess}\nIs that it?")
            if verdict != "Maybe":
                return verdict == "Yes"
            self.console.show("A guess is right or wrong.")

    def _truth(self) -> None:
        self.console.tell_once(f"You have this in mind: {self.task.payload['title']}. {_KEEP_QUIET}")


class HumanTurtleUser(_Human):
    """Answers about the hidden story, and grades explanations criterion by criterion."""

    async def reply(self, question: str) -> Answer:
        """Yes, No or Maybe."""
        self._truth()
        return self.console.answer(f"The agent asks: {question}\n")

    async def grade(self, explanation: str) -> list[float]:
        """0, 0.5 or 1 for each criterion."""
        self._truth()
        self.console.show(f"The agent explains: {explanation}\nHow much of each does it say?")
        return [self._one(criterion["statement"]) for criterion in self.task.payload["criteria"]]

    def _one(self, statement: str) -> float:
        while True:
            typed = self.console.line(f"  {statement} [0/0.5/1] ").lower()
            if typed in _GRADES:
                return _GRADES[typed]
            self.console.show("Type 0, 0.5 or 1.")

    def _truth(self) -> None:
        self.console.tell_once(f"The hidden story: {self.task.payload['bottom']}\n{_KEEP_QUIET}")


class HumanPersuadeUser(_Human):
    """Speaks for the claim, and says where it stands after each argument."""

    async def hear(self, argument: str, stance: str) -> Verdict:
        """The typed response, and a stance from the list."""
        payload = self.task.payload
        self.console.tell_once(
            f"You hold this claim: {payload['claim']}\n{payload['argument']}\n"
            "Answer as somebody who can be moved by good reasons and by nothing else."
        )
        self.console.show(f"The agent argues: {argument}\n(So far you: {stance}.)")
        response = self.console.line("You say: ")
        level = self.console.choose("Your stance now: ", STANCES)
        return Verdict(response, STANCES[level])


class HumanIntentionUser(_Human):
    """Replies as the person with the request, and says which of the open details a question asks for."""

    async def reply(self, question: str, conversation: Sequence[Exchange]) -> str:
        """The typed answer."""
        listed = "\n".join(f"  - {d.description} (importance {d.importance})" for d in details_of(self.task))
        self.console.tell_once(
            f"Your request: {self.task.payload['task']}\nIt leaves open:\n{listed}\n"
            "Make up an answer where the agent asks for one of them. Do not name what it has not asked for."
        )
        return self.console.line(f"The agent asks: {question}\nYou say: ")

    async def covered(self, question: str, remaining: Sequence[Detail]) -> Sequence[int]:
        """Indices of the details named by number; none for an empty choice."""
        listed = "\n".join(f"  {i}. {detail.description}" for i, detail in enumerate(remaining, 1))
        self.console.show(f"Which of these did the question ask for?\n{listed}")
        while True:
            typed = self.console.line("Numbers, or 0 for none: ").replace(",", " ").split()
            if all(part.isdecimal() and int(part) <= len(remaining) for part in typed):
                return sorted({int(part) - 1 for part in typed if int(part) > 0})
            self.console.show(f"Type numbers from 1 to {len(remaining)} with spaces between them, or 0.")
