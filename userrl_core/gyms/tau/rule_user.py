"""TauGym's rule user, which states its instruction a few sentences at a time, confirms when asked, and then ends the
conversation.

It states the sentences that match the agent's question first, then the others in order, and adds nothing. Once everything is
stated, a message that is neither a question nor a request to wait ends the conversation.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from userrl_core.gyms.population import ASIDES, Persona
from userrl_core.gyms.stemming import content_words, stems
from userrl_core.gyms.tau.stopping import STOP, announces, asks
from userrl_core.records import ModelCall, Task

SENTENCES_PER_REPLY = 3
"""Sentences of the instruction in one reply (ours)."""

FORGOTTEN = (
    "You do not remember the numbers of your orders or bookings: give none, and confirm the one that the agent names."
)
"""The last sentence of a withholding instruction. ``withheld`` in the task's payload lists the numbers."""

_NUMBER = re.compile(r"\b[A-Za-z_#]*\d{3,}\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
_CONFIRM = re.compile(
    r"\b(confirm|proceed|yes/no|\(yes|go ahead|shall i|should i|would you like me|is that (?:right|ok|correct))", re.I
)
_PRONOUNS = (
    (r"\byou are\b", "I am"), (r"\byou're\b", "I'm"), (r"\byou were\b", "I was"), (r"\byou've\b", "I've"),
    (r"\byou'd\b", "I'd"), (r"\byou'll\b", "I'll"), (r"\byourself\b", "myself"), (r"\byours\b", "mine"),
    (r"\byour\b", "my"), (r"\b(to|for|of|with|from|give|gives|send|tell|told|ask|asks|let|charge|refund) you\b", r"\1 me"),
    (r"\byou\b", "I"),
)  # fmt: skip


def disclosures(instruction: str) -> int:
    """Return the number of replies that state an instruction in full."""
    return -(-len(_sentences(instruction)) // SENTENCES_PER_REPLY)


def _sentences(instruction: str) -> list[str]:
    return _SENTENCE.split(instruction.strip().removesuffix(FORGOTTEN).strip())


class RuleTauUser:
    """A deterministic customer; the generator is unused. population: the customers to draw from."""

    def __init__(self, task: Task, rng: random.Random, *, population: str | Mapping[str, Any] | None = None) -> None:
        self.persona = None if population is None else Persona("tau", task.id, population)
        self._messages = 0
        self._correction = ""
        self.ledger: list[ModelCall] = []
        self._unstated = [first_person(sentence) for sentence in _sentences(task.payload["instruction"])]
        self._withheld: list[str] = list(task.payload.get("withheld", ()))

    async def reply(self, message: str) -> str:
        """Return the customer's next message, with the stop token at the end of the conversation."""
        return self._honest(message) if self.persona is None else self._as_drawn(self.persona, message)

    def _as_drawn(self, persona: Persona, message: str) -> str:
        """Return the reply of a drawn customer. Only a message that asks is reacted to; a slip changes one number."""
        self._messages += 1
        if persona.leaves(self._messages):
            return f"This takes too long. {STOP}"
        if self._correction:
            correction, self._correction = self._correction, ""
            return f"{correction} {self._honest(message)}"
        if not self._unstated or not asks(message):
            return self._honest(message)
        move = persona.move(message)
        if move in ASIDES:
            return ASIDES[move][1]
        text = self._honest(message)
        if persona.volunteers() and self._unstated:
            text = f"{text} {self._next_sentences(message)}"
        number = _NUMBER.search(text) if move == "slips" else None
        if number is None:
            return text
        self._correction = f"I said a wrong number before: it is {number[0]}."
        return text.replace(number[0], _misread(number[0]), 1)

    def _honest(self, message: str) -> str:
        named_numbers = [number for number in self._withheld if number in message]
        self._withheld = [number for number in self._withheld if number not in named_numbers]
        text = self._answer(message)
        for number in self._withheld:
            text = text.replace(number, "of mine, whose number I do not remember")
        return f"It is {' and '.join(named_numbers)}. {text}" if named_numbers and asks(message) else text

    def _answer(self, message: str) -> str:
        """Return the reply of a customer with perfect memory."""
        if self._unstated:
            sentences = self._next_sentences(message)
            return f"Yes. {sentences}" if _CONFIRM.search(message) else sentences
        if asks(message):
            return "Yes, please go ahead." if _CONFIRM.search(message) else "I have told you everything I know."
        if announces(message):
            return "All right, I will wait."
        return f"Thank you, that is all. {STOP}"

    def _next_sentences(self, message: str) -> str:
        """Remove and return the next sentences: those that share a stem with the message, then the first ones."""
        message_stems = tuple(stems(message[:2000]))
        matching = [
            any(token.startswith(message_stems) for token in content_words(sentence)) for sentence in self._unstated
        ]
        by_match = sorted(range(len(self._unstated)), key=lambda number: (not matching[number], number))
        chosen_indices = sorted(by_match[:SENTENCES_PER_REPLY])
        sentences = " ".join(self._unstated[number] for number in chosen_indices)
        self._unstated = [sentence for number, sentence in enumerate(self._unstated) if number not in chosen_indices]
        return sentences


def _misread(number: str) -> str:
    """Return a number with its last two digits in the other order, or with another last digit if they are the same."""
    a, b = number[-2], number[-1]
    return f"{number[:-2]}{b}{a}" if a != b else f"{number[:-1]}{(int(b) + 1) % 10}"


def first_person(sentence: str) -> str:
    """Put a sentence of the instruction in the customer's words (You want -> I want)."""
    for pattern, replacement in _PRONOUNS:
        sentence = re.sub(pattern, replacement, sentence, flags=re.IGNORECASE)
    return sentence[:1].upper() + sentence[1:]
