"""Shows how it is done, with a given skill."""

import random

from userrl_core.gyms.base import GymConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class CoinDemonstrator:
    """Asks the user with probability skill squared, else guesses: at half the skill, RL has something left to learn."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: GymConfig) -> None:
        self.rng, self.asks = rng, rng.random() < skill**2

    def act(self, observation: str) -> InteractCall:
        """Return the next call."""
        if self.asks:
            self.asks = False
            return InteractCall("action", "Which side?")
        hints = {"It starts with h.": "heads", "It starts with t.": "tails"}
        return InteractCall("answer", hints.get(observation) or self.rng.choice(["heads", "tails"]))
