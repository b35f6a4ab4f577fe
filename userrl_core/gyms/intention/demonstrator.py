"""IntentionGym's scripted demonstrator: a question for one missing detail at a time, or a bad one with probability 1 - skill."""

from __future__ import annotations

import random

from userrl_core.gyms.intention.gym import IntentionConfig, details_of
from userrl_core.interact import Choice, InteractCall
from userrl_core.records import Task

_SMALL_TALK = (
    "How has your day been so far?",
    "Shall I begin right away?",
    "Did you know that I can help with almost anything?",
    "Could you say a little more?",
    "Is it raining where you live?",
)


class IntentionDemonstrator:
    """A player of one episode.

    skill: probability per turn of asking for the most important detail left. Otherwise the turn is small talk or all
    questions at once.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: IntentionConfig) -> None:
        self._remaining = sorted(details_of(task), key=lambda detail: -detail.importance)
        self._rng = rng
        self._skill = skill

    def act(self, observation: str) -> InteractCall:
        """Return the next question. It does not depend on the observation."""
        if self._remaining and self._rng.random() < self._skill:
            return self._ask(self._remaining.pop(0).inquiry)
        if len(self._remaining) > 2 and self._rng.random() < 0.2:
            questions, self._remaining = [detail.inquiry for detail in self._remaining], []
            return self._ask(" ".join(questions))
        return self._ask(self._rng.choice(_SMALL_TALK))

    def _ask(self, question: str) -> InteractCall:
        return InteractCall(Choice.ACTION, question)
