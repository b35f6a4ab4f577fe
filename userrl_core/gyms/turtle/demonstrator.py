"""TurtleGym's scripted demonstrator: it asks about every criterion of the hidden story, then explains it."""

from __future__ import annotations

import random

from userrl_core.gyms.turtle.gym import TurtleConfig, full_explanation
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_GENERIC_QUESTIONS = (
    "Is somebody dead?",
    "Is it about money?",
    "Was it a dream?",
    "Is an animal involved?",
    "Was it a crime?",
)
_WRONG_STORIES = ("It was all a dream.", "Somebody played a joke.", "A ghost did it.", "It was about money.")


class TurtleDemonstrator:
    """A player of one episode. With probability 1 - skill a turn is a generic question or a wrong explanation."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: TurtleConfig) -> None:
        self._task, self._rng, self._skill = task, rng, skill
        self._questions = [criterion["ask"] for criterion in task.payload["criteria"]]

    def act(self, observation: str) -> InteractCall:
        """Return the next call. It does not depend on the observation."""
        if self._rng.random() >= self._skill:
            if self._rng.random() < 0.7:
                return InteractCall("action", self._rng.choice(_GENERIC_QUESTIONS))
            return InteractCall("answer", self._rng.choice(_WRONG_STORIES))
        if self._questions:
            return InteractCall("action", self._questions.pop(0))
        return InteractCall("answer", full_explanation(self._task))
