"""The scripted demonstrator of TurtleGym: asks about every part of the hidden story, then tells it."""

from __future__ import annotations

import random

from userrl_core.gyms.turtle.gym import TurtleConfig, full_explanation
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_STRAY_QUESTIONS = (
    "Is somebody dead?",
    "Is it about money?",
    "Was it a dream?",
    "Is an animal involved?",
    "Was it a crime?",
)
_STRAY_STORIES = ("It was all a dream.", "Somebody played a joke.", "A ghost did it.", "It was about money.")


class TurtleDemonstrator:
    """Plays one attempt. With probability 1 - skill a turn is a question or an explanation out of thin air."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: TurtleConfig) -> None:
        self._task, self._rng, self._skill = task, rng, skill
        self._asks = [criterion["ask"] for criterion in task.payload["criteria"]]

    def act(self, observation: str) -> InteractCall:
        """The next call; what the user replied is known beforehand."""
        if self._rng.random() >= self._skill:
            if self._rng.random() < 0.7:
                return InteractCall("action", self._rng.choice(_STRAY_QUESTIONS))
            return InteractCall("answer", self._rng.choice(_STRAY_STORIES))
        if self._asks:
            return InteractCall("action", self._asks.pop(0))
        return InteractCall("answer", full_explanation(self._task))
