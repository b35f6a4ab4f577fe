"""IntentionGym's scripted demonstrator: asks for one open detail at a time, or asks badly when its skill fails it."""

from __future__ import annotations

import random

from userrl_core.gyms.intention.gym import IntentionConfig, details_of
from userrl_core.interact import Choice, InteractCall
from userrl_core.records import Task

_IDLE = (
    "How has your day been so far?",
    "Shall I begin right away?",
    "Did you know that I can help with almost anything?",
    "Could you say a little more?",
    "Is it raining where you live?",
)


class IntentionDemonstrator:
    """skill: the chance of each turn to ask for the most important detail left; else it chats, or asks for all at once."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: IntentionConfig) -> None:
        self._open = sorted(details_of(task), key=lambda detail: -detail.importance)
        self._rng = rng
        self._skill = skill

    def act(self, observation: str) -> InteractCall:
        """The next question; what the user said does not matter to what is still open."""
        if self._open and self._rng.random() < self._skill:
            return self._ask(self._open.pop(0).inquiry)
        if len(self._open) > 2 and self._rng.random() < 0.2:
            questions, self._open = [detail.inquiry for detail in self._open], []
            return self._ask(" ".join(questions))
        return self._ask(self._rng.choice(_IDLE))

    def _ask(self, question: str) -> InteractCall:
        return InteractCall(Choice.ACTION, question)
