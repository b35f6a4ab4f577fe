"""The scripted demonstrator of SciWorld: the simulator's own solution, with looks around in between."""

from __future__ import annotations

import random

from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_gym_sciworld.gym import SciWorldConfig
from userrl_gym_sciworld.simulator import solution

IDLE = ("look around", "inventory", "task")


class SciWorldDemonstrator:
    """A player of one episode. With probability 1 - skill a turn only looks. If time matters, that can make a solution fail."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: SciWorldConfig) -> None:
        self._steps = list(solution(task.payload["task"], task.payload["variation"]))
        self._rng, self._skill = rng, skill

    def act(self, observation: str) -> InteractCall:
        """Return the next call."""
        if not self._steps or self._rng.random() >= self._skill:
            return InteractCall("action", self._rng.choice(IDLE))
        return InteractCall("action", self._steps.pop(0))
