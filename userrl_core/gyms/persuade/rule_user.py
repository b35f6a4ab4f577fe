"""PersuadeGym's rule user, which is moved by strong and new arguments, and never twice by the same one.

If a task lists rebuttals, an argument that contains one of them (half of its content stems) moves the user by its weight. All
other arguments together move the user two levels at most. Each of them must be about the claim, oppose it and use new words.
Then reasons, evidence, length and a reply to the user's own argument score one point each. Two points move the user one level,
four points two levels.

These points are for form alone. A template of invented words around the claim's earns .33 where rebuttals are listed, and the
full 1.0 on a published claim, which lists none.
"""

from __future__ import annotations

import random
import re

from userrl_core.gyms.persuade.gym import STANCES, ListenerResponse, rebuttals_of
from userrl_core.gyms.stemming import stems, words
from userrl_core.records import Task

MIN_COVERAGE = 0.5
"""Share of a rebuttal's stems that an argument must hold to contain it."""
MIN_NOVELTY = 0.4
"""Share of an argument's stems that must be new in the conversation."""
MAX_LEVELS = 2
"""Most levels that one message can move the user."""
MAX_UNLISTED_LEVELS = 2
"""Most levels that arguments outside the listed rebuttals can move the user in all, if a task lists any."""
MIN_SHARE = 0.05
"""Share of an argument's stems that must be a rebuttal's. A list of many words contains some of every rebuttal."""

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
_RESPONSES: dict[str | int, tuple[str, ...]] = {
    "empty": ("I did not hear an argument.",),
    "off": ("That has little to do with what I said.", "I do not see how this bears on my claim."),
    "again": ("You have told me that already.", "I have heard this point; give me another reason."),
    "weak": ("I see what you mean, but it does not convince me.", "That is too thin to change my mind."),
    1: ("That is a fair point; I am a little less sure now.", "I had not weighed that enough."),
    2: ("That is a strong point, and I have no good answer to it.", "You have shaken a good part of my reasoning."),
}


class RulePersuadeUser:
    """A user that is deterministic under its generator."""

    def __init__(self, task: Task, rng: random.Random) -> None:
        self._rng = rng
        self._topic = set(stems(f"{task.payload['claim']} {task.payload['argument']}"))
        claim = set(stems(str(task.payload["claim"])))
        self._rebuttals = [(r, set(stems(r.text)) - claim or set(stems(r.text))) for r in rebuttals_of(task)]
        self._known_stems = set(self._topic)
        self._unlisted_levels = MAX_UNLISTED_LEVELS if self._rebuttals else len(STANCES)

    async def respond(self, argument: str, stance: str) -> ListenerResponse:
        """Return a fixed response for the argument's strength, and the resulting stance."""
        strength = self._judge(argument)
        level = min(len(STANCES) - 1, STANCES.index(stance) + (strength if isinstance(strength, int) else 0))
        return ListenerResponse(
            f"{self._rng.choice(_RESPONSES[strength])} My stance: {STANCES[level]}.", STANCES[level]
        )

    def _judge(self, argument: str) -> str | int:
        """Return the number of levels that the argument moves the user, or the kind of its failure."""
        argument_stems = set(stems(argument))
        if not argument_stems:
            return "empty"
        contained = [
            i
            for i, (_, rebuttal_stems) in enumerate(self._rebuttals)
            if len(rebuttal_stems & argument_stems)
            >= max(MIN_COVERAGE * len(rebuttal_stems), MIN_SHARE * len(argument_stems))
        ]
        novelty = len(argument_stems - self._known_stems) / len(argument_stems)
        on_topic = len(argument_stems & self._topic)
        self._known_stems |= argument_stems
        if contained:
            levels = min(MAX_LEVELS, sum(self._rebuttals[i][0].weight for i in contained))
            self._rebuttals = [pair for i, pair in enumerate(self._rebuttals) if i not in contained]
            return levels
        if on_topic < 2:
            return "off"
        if novelty < MIN_NOVELTY:
            return "again"
        levels = min(self._unlisted_levels, self._levels(argument, on_topic))
        self._unlisted_levels -= levels
        return levels or "weak"

    def _levels(self, argument: str, on_topic: int) -> int:
        """Return the levels gained by an argument that is new and on topic, 0 to `MAX_LEVELS`."""
        if not _OPPOSING.search(argument):
            return 0
        points = [_REASONS.search(argument), _EVIDENCE.search(argument), len(words(argument)) >= 40, on_topic >= 4]
        return min(MAX_LEVELS, sum(bool(point) for point in points) // 2)
