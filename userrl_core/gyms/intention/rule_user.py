"""IntentionGym's rule user, which finds the details in a question by its words and states a preference for each.

A detail is described by the word stems of its description and of its inquiry. A question asks for it when it holds enough
of them. Stems shared by several details of the task weigh less, and stems of the request itself do not count.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from userrl_core.gyms.intention.gym import Detail, Exchange, details_of
from userrl_core.gyms.stemming import normalise, stem, stems
from userrl_core.records import Task

MIN_COVERAGE = 0.5
"""Share of a detail's weight that a question must hold to ask for it."""

_QUESTION_STEMS = frozenset(
    stem(word)
    for word in re.findall(
        r"\w+",
        """prefer preferred preference preferences specific specifically specifics particular looking interested interest like want
need type kind sort any please tell know could would there aspect aspects include including focus certain mind such have are do
you your yours else example examples desired for what which how long many much often does should or plan planning going using
use uses used come""",
    )
)
"""Stems of words that occur in questions of any kind and so do not distinguish details."""


Weights = dict[str, float]
"""Weight by stem."""


class RuleIntentionUser:
    """A user that is deterministic under its generator and states a preference only for requested details."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self._details = details_of(task)
        self._request = str(task.payload["task"])
        self._category = str(task.payload["category"])
        self._rng = rng
        self._preferences = {detail.description: self._preference(detail) for detail in self._details}

    async def reply(self, question: str, conversation: Sequence[Exchange]) -> str:
        """Return a preference for each requested detail, or a polite reply without a preference."""
        detail_indices = self._asked(question)
        if not detail_indices:
            return "I have no view on that. Is there anything else about my request that you need to know?"
        return " ".join(self._preferences[self._details[i].description] for i in detail_indices)

    async def covered(self, question: str, remaining: Sequence[Detail]) -> Sequence[int]:
        """Return the indices into ``remaining`` of the details that the question's words ask for."""
        requested_details = {self._details[i] for i in self._asked(question)}
        return [i for i, detail in enumerate(remaining) if detail in requested_details]

    def _asked(self, question: str) -> list[int]:
        normalised = normalise(question)
        verbatim = [i for i, detail in enumerate(self._details) if normalise(detail.inquiry) in normalised]
        if verbatim:
            return verbatim
        question_stems = set(_distinctive_stems(question))
        return [i for i, weights in enumerate(self._weights) if _coverage(weights, question_stems) >= MIN_COVERAGE]

    @cached_property
    def _weights(self) -> list[tuple[Weights, Weights]]:
        """Stem weights of each detail's description and inquiry. Shared stems weigh less."""
        request_stems = set(_distinctive_stems(self._request)) | set(_distinctive_stems(self._category))
        descriptions = [set(_distinctive_stems(d.description)) for d in self._details]
        descriptions = [description_stems - request_stems or description_stems for description_stems in descriptions]
        inquiries = [set(_distinctive_stems(d.inquiry)) - request_stems for d in self._details]
        occurrences = Counter(s for a, b in zip(descriptions, inquiries, strict=True) for s in a | b)
        return [
            ({s: 1.0 / occurrences[s] for s in a}, {s: 1.0 / occurrences[s] for s in b})
            for a, b in zip(descriptions, inquiries, strict=True)
        ]

    def _preference(self, detail: Detail) -> str:
        if not detail.options:
            return f"As to {_lower(detail.description)}, I leave that to you."
        return f"{detail.description}: {self._rng.choice(detail.options)}."


def _coverage(weights: tuple[Weights, Weights], question_stems: set[str]) -> float:
    """Return the share of a detail's weight in a question, in [0, 1]: the larger share of its description and its inquiry.

    The inquiry counts only if at least two of its stems occur.
    """
    description, inquiry = weights
    from_inquiry = _weight_share(inquiry, question_stems) if len(question_stems & inquiry.keys()) > 1 else 0.0
    return max(_weight_share(description, question_stems), from_inquiry)


def _weight_share(weights: Weights, question_stems: set[str]) -> float:
    total = sum(weights.values())
    return sum(weight for s, weight in weights.items() if s in question_stems) / total if total else 0.0


def _distinctive_stems(text: str) -> list[str]:
    """Return the stems of a text without general question words, or all stems if it has only such words."""
    text_stems = stems(text)
    return [s for s in text_stems if s not in _QUESTION_STEMS] or text_stems


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
