"""PersuadeGym's user by rule: moved by the strength and the novelty of what it hears, never by the same thing twice.

Where a task lists rebuttals, an argument that makes one of them (half of its content stems) moves by its weight. Any other
argument has to speak to the claim, oppose it, and bring new words; then reasons, evidence, substance and a reply to the
user's own argument count one point each: two points move one level, four move two.
"""

from __future__ import annotations

import random
import re

from userrl_core.gyms.persuade.gym import STANCES, Verdict, rebuttals_of
from userrl_core.gyms.stemming import content_words, stem, words
from userrl_core.records import Task

MADE = 0.5
"""The share of a rebuttal's own stems that an argument must hold to make it."""
NEW = 0.4
"""The share of an argument's stems that must not have been heard before."""
MOST = 2
"""Levels that one message can win, whatever it holds."""

_REASONS = re.compile(
    r"\b(because|since|therefore|thus|hence|so that|as a result|which means|leads? to|due to)\b", re.I
)
_EVIDENCE = re.compile(
    r"\d|\b(stud(?:y|ies)|research|data|evidence|survey|experiment|example|instance|shown|found|statistic|percent)",
    re.I,
)
_OPPOSING = re.compile(
    r"\b(but|however|yet|although|though|instead|not|never|no|nor|wrong|fails?|flaw(?:ed|s)?|overlooks?|ignores?|"
    r"disagree|oppose|mistaken|unlike|whereas|without|harm\w*|risks?|cannot|worse)\b|n't\b|n’t\b",
    re.I,
)
_LINES = {
    "empty": ("I did not hear an argument.",),
    "off": ("That has little to do with what I said.", "I do not see how this bears on my claim."),
    "again": ("You have told me that already.", "I have heard this point; give me another reason."),
    "weak": ("I see what you mean, but it does not convince me.", "That is too thin to change my mind."),
    1: ("That is a fair point; I am a little less sure now.", "I had not weighed that enough."),
    2: ("That is a strong point, and I have no good answer to it.", "You have shaken a good part of my reasoning."),
}


class RulePersuadeUser:
    """Deterministic under its generator."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self._rng = rng
        self._topic = _stems(f"{task.payload['claim']} {task.payload['argument']}")
        claim = _stems(str(task.payload["claim"]))
        self._rebuttals = [(r, _stems(r.text) - claim or _stems(r.text)) for r in rebuttals_of(task)]
        self._heard: set[str] = set(self._topic)

    async def hear(self, argument: str, stance: str) -> Verdict:
        """A line by what the argument was worth, and the stance it leads to."""
        kind = self._weigh(argument)
        level = min(len(STANCES) - 1, STANCES.index(stance) + (kind if isinstance(kind, int) else 0))
        return Verdict(f"{self._rng.choice(_LINES[kind])} My stance: {STANCES[level]}.", STANCES[level])

    def _weigh(self, argument: str) -> str | int:
        said = _stems(argument)
        if not said:
            return "empty"
        made = [i for i, (_, own) in enumerate(self._rebuttals) if len(own & said) >= MADE * len(own)]
        new = len(said - self._heard) / len(said)
        on_topic = len(said & self._topic)
        self._heard |= said
        if made:
            won = min(MOST, sum(self._rebuttals[i][0].weight for i in made))
            self._rebuttals = [pair for i, pair in enumerate(self._rebuttals) if i not in made]
            return won
        if on_topic < 2:
            return "off"
        if new < NEW:
            return "again"
        return self._strength(argument, on_topic) or "weak"

    def _strength(self, argument: str, on_topic: int) -> int:
        """Levels won by an argument that is new and to the point, 0 to `MOST`."""
        if not _OPPOSING.search(argument):
            return 0
        points = [_REASONS.search(argument), _EVIDENCE.search(argument), len(words(argument)) >= 40, on_topic >= 4]
        return min(MOST, sum(bool(point) for point in points) // 2)


def _stems(text: str) -> set[str]:
    return {stem(word) for word in content_words(text)}
