"""Shows how it is done, with a given skill."""

import random

from userrl_core.gyms.base import GymConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class CoinDemonstrator:
    """Knows the side with probability skill, else guesses."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: GymConfig) -> None:
        self.task, self.rng, self.skill = task, rng, skill

    def act(self, observation: str) -> InteractCall:
        """Return the next call."""
        known = self.rng.random() < self.skill
        return InteractCall("answer", self.task.payload["side"] if known else self.rng.choice(["heads", "tails"]))
