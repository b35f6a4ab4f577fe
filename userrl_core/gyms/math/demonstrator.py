"""The math gym's scripted demonstrator, which knows the answer and gives a wrong number with probability 1 - skill."""

from __future__ import annotations

import random

from userrl_core.gyms.math.gym import MathConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class MathDemonstrator:
    """A player of one episode. With probability 1 - skill an answer is off by up to 20."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: MathConfig) -> None:
        self._answer, self._rng, self._skill = int(task.payload["answer"]), rng, skill

    def act(self, observation: str) -> InteractCall:
        """Return the next answer."""
        error = 0 if self._rng.random() < self._skill else self._rng.choice([-1, 1]) * self._rng.randint(1, 20)
        return InteractCall("answer", str(self._answer + error))
