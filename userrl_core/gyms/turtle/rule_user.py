"""The rule user of TurtleGym: answers questions and grades explanations by word stems, from the story's own patterns.

A released story has no list of questions; there a question is answered Yes where everything it names occurs in the hidden
story, and Maybe otherwise.
"""

from __future__ import annotations

import random

from userrl_core.gyms.stemming import Pattern, content_words, hit, negated, normalise, share, stem, words
from userrl_core.records import ModelCall, Task
from userrl_core.served.verdict import Answer

FULL, HALF = 0.8, 0.5
"""Shares of a criterion's groups that earn 1 and 0.5 (ours)."""

MAX_WORDS = 400
"""An explanation is read no further than this: longer ones are word lists, not explanations (ours)."""


class RuleTurtleUser:
    """Knows the whole story; deterministic, the generator is not used."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []
        self._story = task.payload
        self._patterns = [
            criterion["pattern"] or _read(criterion["statement"]) for criterion in self._story["criteria"]
        ]
        self._surface = set(words(f"{self._story['title']} {self._story['surface']}"))

    async def reply(self, question: str) -> Answer:
        """Yes, No or Maybe to a question about the story."""
        plain = normalise(question)
        if any(plain == normalise(criterion["ask"]) for criterion in self._story["criteria"]):
            return "Yes"
        if negated(question):
            return "Maybe"
        if self._story["yes"] is None:
            return self._from_text(question)
        said = words(question)
        yes, no = _strength([*self._patterns, *self._story["yes"]], said), _strength(self._story["no"], said)
        if yes == no:
            return "Maybe"
        return "Yes" if yes > no else "No"

    async def grade(self, explanation: str) -> list[float]:
        """0, 0.5 or 1 for each criterion, in the story's order."""
        said = words(explanation)[:MAX_WORDS]
        return [self._grade(pattern, said) for pattern in self._patterns]

    def _grade(self, pattern: Pattern, said: list[str]) -> float:
        # Repeating the surface explains nothing: at least one group must be met by a word that the surface does not hold.
        hidden = [group for group in pattern if not hit(group, self._surface)]
        fresh = [word for word in said if word not in self._surface]
        if not any(hit(group, fresh) for group in (hidden or pattern)) and (hidden or not said):
            return 0.0
        covered = share(pattern, said)
        return 1.0 if covered >= FULL else 0.5 if covered >= HALF else 0.0

    def _from_text(self, question: str) -> Answer:
        story = self._story
        known = words(" ".join([story["bottom"], *(criterion["statement"] for criterion in story["criteria"])]))
        asked = [[stem(word)] for word in content_words(question)]
        new = any(not hit(group, self._surface) for group in asked)
        return "Yes" if new and share(asked, known) == 1.0 else "Maybe"


def _read(statement: str) -> list[list[str]]:
    """A released criterion's pattern: every word of its statement that carries meaning."""
    return [[stem(word)] for word in content_words(statement)]


def _strength(patterns: list[Pattern], said: list[str]) -> int:
    """The most groups of a pattern that is met in full; 0 when none is."""
    return max((len(pattern) for pattern in patterns if share(pattern, said) == 1.0), default=0)
