"""The rule user of SearchGym: an answer is right when its letters and digits are those of the truth."""

from __future__ import annotations

import random

from userrl_core.gyms.stemming import normalise
from userrl_core.records import ModelCall, Task


class RuleSearchUser:
    """Compares texts; deterministic, the generator is not used."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []
        self._truths = {squeeze(truth) for truth in (task.payload["answer"], *task.payload["aliases"])}

    async def matches(self, answer: str) -> bool:
        """Whether the answer is the truth or an alias, apart from case, accents, punctuation and a leading article."""
        return squeeze(answer) in self._truths


def squeeze(text: str) -> str:
    """Lower-case letters and digits only (``1,889`` and ``1889`` are the same), a leading article dropped."""
    return normalise(text).replace(" ", "")
