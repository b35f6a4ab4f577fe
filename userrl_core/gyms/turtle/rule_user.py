"""TurtleGym's rule user, which answers and grades by word stems, with the story's own patterns.

A released story has no list of questions. The answer is then Yes if all content words of the question occur in the hidden
story, and Maybe otherwise.

Short lists of words that are frequent in other stories still earn a little.
"""

from __future__ import annotations

import random

from userrl_core.gyms.stemming import (
    Pattern,
    content_words,
    coverage,
    matches,
    negated,
    normalise,
    stem,
    strongest_match,
    words,
)
from userrl_core.records import ModelCall, Task
from userrl_core.served.verdict import Answer

FULL, HALF = 0.8, 0.5
"""Coverages of a criterion's pattern that earn 1 and 0.5 (ours)."""

MAX_WORDS = 300
"""Number of words of an explanation that are graded (ours). The longest gold explanation of a training story has 294."""

MIN_SHARE = 0.15
"""Share of an explanation's content words outside the surface that the story's patterns must match (ours). A list has less."""


class RuleTurtleUser:
    """A deterministic user; the generator is unused."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self.ledger: list[ModelCall] = []
        self._story = task.payload
        self._patterns = [
            criterion["pattern"] or _pattern_of(criterion["statement"]) for criterion in self._story["criteria"]
        ]
        self._surface = set(words(f"{self._story['title']} {self._story['surface']}"))

    async def reply(self, question: str) -> Answer:
        """Return Yes, No or Maybe to a question about the story."""
        normalised = normalise(question)
        if any(normalised == normalise(criterion["ask"]) for criterion in self._story["criteria"]):
            return "Yes"
        if negated(question):
            return "Maybe"
        if self._story["yes"] is None:
            return self._from_text(question)
        question_words = words(question)
        yes = strongest_match([*self._patterns, *self._story["yes"]], question_words)
        no = strongest_match(self._story["no"], question_words)
        if yes == no:
            return "Maybe"
        return "Yes" if yes > no else "No"

    async def grade(self, explanation: str) -> list[float]:
        """Return 0, 0.5 or 1 for each criterion, in the story's order."""
        explanation_words = words(explanation)[:MAX_WORDS]
        new_words = [token for token in content_words(" ".join(explanation_words)) if token not in self._surface]
        story_stems = [pattern_stem for pattern in self._patterns for group in pattern for pattern_stem in group]
        if sum(matches(story_stems, [token]) for token in new_words) < MIN_SHARE * len(new_words):
            return [0.0] * len(self._patterns)
        return [self._grade(pattern, explanation_words) for pattern in self._patterns]

    def _grade(self, pattern: Pattern, explanation_words: list[str]) -> float:
        # Repeating the surface is no explanation: at least one group must match a word that is not in the surface.
        hidden = [group for group in pattern if not matches(group, self._surface)]
        new_words = [token for token in explanation_words if token not in self._surface]
        if not any(matches(group, new_words) for group in (hidden or pattern)) and (hidden or not explanation_words):
            return 0.0
        covered = coverage(pattern, explanation_words)
        return 1.0 if covered >= FULL else 0.5 if covered >= HALF else 0.0

    def _from_text(self, question: str) -> Answer:
        story = self._story
        story_words = words(" ".join([story["bottom"], *(criterion["statement"] for criterion in story["criteria"])]))
        pattern = _pattern_of(question)
        new = any(not matches(group, self._surface) for group in pattern)
        return "Yes" if new and coverage(pattern, story_words) == 1.0 else "Maybe"


def _pattern_of(text: str) -> list[list[str]]:
    return [[stem(token)] for token in content_words(text)]
