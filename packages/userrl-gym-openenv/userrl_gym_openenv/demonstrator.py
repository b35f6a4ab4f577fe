"""OpenEnv servers have no scripted demonstrator."""

from __future__ import annotations

import random

from userrl_core.errors import GymError
from userrl_core.gyms.base import GymConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class OpenEnvDemonstrator:
    """A player that says what to use in its place."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: GymConfig) -> None:
        self._env = task.tier

    def act(self, observation: str) -> InteractCall:
        """Raise GymError: nobody wrote a player for this environment."""
        raise GymError(
            "demonstrations.no_script",
            f"Environment {self._env} has no scripted demonstrator. Name a model in demonstrations.policy, or set "
            "cold_start.data to recorded conversations.",
        )
