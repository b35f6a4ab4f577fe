"""PersuadeGym's scripted demonstrator: one good argument per turn, or empty insistence with probability 1 - skill."""

from __future__ import annotations

import random

from userrl_core.gyms.persuade.gym import PersuadeConfig, rebuttals_of
from userrl_core.gyms.stemming import content_words
from userrl_core.interact import Choice, InteractCall
from userrl_core.records import Task

_EMPTY = (
    "You are wrong.",
    "Please change your mind, it would make me happy.",
    "Everybody knows better than that.",
    "Think about it again.",
    "I simply disagree with you.",
)

# For claims without rebuttals: arguments against most claims, each in different words.
_GENERAL = (
    "The costs fall on people who never chose them. For example, families with low wages pay first because prices rise",
    "Good intentions fail in practice. Inspectors in 12 regions found loopholes since rules were written in a hurry",
    "A cheaper remedy exists. Towns that tried voluntary agreements report, for instance, equal benefits without coercion",
    "History speaks against it. Earlier attempts collapsed within 5 years because officials lacked staff and expertise",
    "Side effects outweigh the gain. One survey counted twice as many complaints, which means trust was destroyed",
    "Nobody could measure success. Experts quarrel over every indicator, therefore money would flow without control",
    "Minorities suffer most. Research on excluded neighbourhoods shows deeper gaps, due to biased enforcement",
    "Circumstances differ between places. A uniform answer ignores local knowledge, thus data from one city misleads",
    "It invites abuse. Powerful companies bend vague language, as a result newcomers vanish; 3 lawsuits prove it",
)


class PersuadeDemonstrator:
    """A player of one episode.

    skill: probability per turn of the strongest argument left. Otherwise the turn is a statement without a reason.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: PersuadeConfig) -> None:
        self._arguments = [r.text for r in sorted(rebuttals_of(task), key=lambda r: -r.weight)] or _general(task)
        self._rng = rng
        self._skill = skill

    def act(self, observation: str) -> InteractCall:
        """Return the next argument. It does not depend on the observation."""
        skilled = bool(self._arguments) and self._rng.random() < self._skill
        return InteractCall(Choice.ACTION, self._arguments.pop(0) if skilled else self._rng.choice(_EMPTY))


def _general(task: Task) -> list[str]:
    topic = content_words(f"{task.payload['claim']} {task.payload['argument']}")
    topic_words = ", ".join(topic[:5])
    return [
        f"{line}. Your case about {topic_words} overlooks this, and so it does not hold; the argument is flawed where it matters."
        for line in _GENERAL
    ]
