"""The rule user of TauGym: plays the instruction by telling it piece by piece, agrees when asked, and then ends the talk.

It is no clever customer: it tells its sentences in order, those first that the agent's question is about, and never invents.
When everything is told, a message that neither asks something nor begs for patience ends the conversation.
"""

from __future__ import annotations

import random
import re

from userrl_core.gyms.stemming import content_words, stem
from userrl_core.records import ModelCall, Task

AT_ONCE = 3
"""Sentences told in one reply (ours)."""

STOP = "###STOP###"

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
_CONFIRM = re.compile(
    r"\b(confirm|proceed|yes/no|\(yes|go ahead|shall i|should i|would you like me|is that (?:right|ok|correct))", re.I
)
_WAITING = re.compile(
    r"\b(one moment|a moment|let me|please wait|hold on|i will now|i'll now|i am going to)\b", re.IGNORECASE
)
_CLOSING = re.compile(r"\b(anything|something) else\b|\bfurther\b", re.I)
_PRONOUNS = (
    (r"\byou are\b", "I am"), (r"\byou're\b", "I'm"), (r"\byou were\b", "I was"), (r"\byou've\b", "I've"),
    (r"\byou'd\b", "I'd"), (r"\byou'll\b", "I'll"), (r"\byourself\b", "myself"), (r"\byours\b", "mine"),
    (r"\byour\b", "my"), (r"\b(to|for|of|with|from|give|gives|send|tell|told|ask|asks|let|charge|refund) you\b", r"\1 me"),
    (r"\byou\b", "I"),
)  # fmt: skip


def disclosures(instruction: str) -> int:
    """How many replies tell an instruction in full."""
    return -(-len(_SENTENCE.split(instruction.strip())) // AT_ONCE)


class RuleTauUser:
    """Knows its instruction; deterministic, the generator is not used."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []
        self._untold = [first_person(sentence) for sentence in _SENTENCE.split(task.payload["instruction"].strip())]

    async def reply(self, said: str) -> str:
        """The customer's next line; holds the stop token when the conversation is over."""
        if self._untold:
            told = self._take(said)
            return f"Yes. {told}" if _CONFIRM.search(said) else told
        if "?" in said and not _CLOSING.search(said):
            return "Yes, please go ahead." if _CONFIRM.search(said) else "I have told you everything I know."
        if _WAITING.search(said) and not _CLOSING.search(said):
            return "All right, I will wait."
        return f"Thank you, that is all. {STOP}"

    def _take(self, said: str) -> str:
        asked = tuple(stem(word) for word in content_words(said[:2000]))
        fits = [bool(asked) and any(word.startswith(asked) for word in content_words(s)) for s in self._untold]
        order = sorted(range(len(self._untold)), key=lambda number: (not fits[number], number))[:AT_ONCE]
        told = " ".join(self._untold[number] for number in sorted(order))
        self._untold = [sentence for number, sentence in enumerate(self._untold) if number not in order]
        return told


def first_person(sentence: str) -> str:
    """An instruction's sentence as the customer would say it (You want -> I want)."""
    for pattern, word in _PRONOUNS:
        sentence = re.sub(pattern, word, sentence, flags=re.IGNORECASE)
    return sentence[:1].upper() + sentence[1:]
