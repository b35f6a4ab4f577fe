"""SearchGym's rule user: an answer is right when its letters and digits equal those in the right answer."""

from __future__ import annotations

import random

from userrl_core.gyms.stemming import normalise
from userrl_core.records import ModelCall, Task


class RuleSearchUser:
    """A deterministic judge that compares texts; the generator is unused."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []
        self._right_answers = {squeeze(answer) for answer in (task.payload["answer"], *task.payload["aliases"])}

    async def matches(self, answer: str) -> bool:
        """Return whether the answer is the right one or an alias, up to case, accents, punctuation and a leading article."""
        return squeeze(answer) in self._right_answers


def squeeze(text: str) -> str:
    """Return only lower-case letters and digits (``1,889`` equals ``1889``), without a leading article."""
    return normalise(text).replace(" ", "")
