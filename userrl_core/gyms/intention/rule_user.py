"""IntentionGym's user by rule: which details a question asks for is read from its words, and the reply names a preference.

A detail is described by the word stems of its description and of its inquiry. A question asks for it when it holds enough
of them, where stems that several details of the task share count less, and stems of the request itself not at all.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from userrl_core.gyms.intention.gym import Detail, Exchange, details_of
from userrl_core.gyms.stemming import content_words, normalise, stem
from userrl_core.records import Task

ENOUGH = 0.5
"""The share of a detail's weight that a question must hold."""

_ASKING = frozenset(
    stem(word)
    for word in re.findall(
        r"\w+",
        """prefer preferred preference preferences specific specifically specifics particular looking interested interest like want
need type kind sort any please tell know could would there aspect aspects include including focus certain mind such have are do
you your yours else example examples desired for what which how long many much often does should or plan planning going using
use uses used come""",
    )
)
"""Words with which anything may be asked for: they tell no detail from another."""


class RuleIntentionUser:
    """Deterministic under its generator; knows the task, and tells a preference only where it was asked for one."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self._details = details_of(task)
        self._request = str(task.payload["task"])
        self._category = str(task.payload["category"])
        self._rng = rng
        self._wishes = {detail.description: self._wish(detail) for detail in self._details}

    async def reply(self, question: str, conversation: Sequence[Exchange]) -> str:
        """A preference for each detail that was asked for, else a polite nothing."""
        asked = self._asked(question)
        if not asked:
            return "I have no view on that. Is there anything else about my request that you need to know?"
        return " ".join(self._wishes[self._details[i].description] for i in asked)

    async def covered(self, question: str, remaining: Sequence[Detail]) -> Sequence[int]:
        """Indices into ``remaining`` of the details that the question's words ask for."""
        asked = {self._details[i] for i in self._asked(question)}
        return [i for i, detail in enumerate(remaining) if detail in asked]

    def _asked(self, question: str) -> list[int]:
        plain = normalise(question)
        literal = [i for i, detail in enumerate(self._details) if normalise(detail.inquiry) in plain]
        if literal:
            return literal
        said = set(_stems(question))
        return [i for i, profile in enumerate(self._profiles) if _share(profile, said) >= ENOUGH]

    @cached_property
    def _profiles(self) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Per detail, the weights of the stems of its description, and of its inquiry; shared stems weigh less."""
        given = set(_stems(self._request)) | set(_stems(self._category))
        described = [set(_stems(d.description)) - given or set(_stems(d.description)) for d in self._details]
        asked = [set(_stems(d.inquiry)) - given for d in self._details]
        spread = Counter(s for a, b in zip(described, asked, strict=True) for s in a | b)
        return [
            ({s: 1.0 / spread[s] for s in a}, {s: 1.0 / spread[s] for s in b})
            for a, b in zip(described, asked, strict=True)
        ]

    def _wish(self, detail: Detail) -> str:
        if not detail.options:
            return f"As to {_lower(detail.description)}, I leave that to you."
        wish = self._rng.choice(detail.options)
        return f"{detail.description}: {wish}."


def _share(profile: tuple[dict[str, float], dict[str, float]], said: set[str]) -> float:
    """How much of a detail the words hold, in [0, 1]: of its description or of its inquiry, whichever is more.

    A single stem is not enough for an inquiry: two of its words must be there.
    """
    description, inquiry = profile
    held = {s for s in inquiry if s in said}
    return max(_part(description, said), _part(inquiry, said) if len(held) > 1 else 0.0)


def _part(weights: dict[str, float], said: set[str]) -> float:
    total = sum(weights.values())
    return sum(weight for s, weight in weights.items() if s in said) / total if total else 0.0


def _stems(text: str) -> list[str]:
    found = dict.fromkeys(stem(word) for word in content_words(text))
    return [s for s in found if s not in _ASKING] or list(found)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
