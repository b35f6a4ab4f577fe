"""The demonstrator of AgentGym's TextCraft. The first observation of this gym holds all necessary knowledge. The
other environments have no scripted demonstrator.
"""

from __future__ import annotations

import random

from userrl_core.errors import GymError
from userrl_core.gyms.base import GymConfig
from userrl_core.gyms.textcraft.crafting import Book
from userrl_core.gyms.textcraft.demonstrator import TextCraftDemonstrator
from userrl_core.gyms.textcraft.gym import TextCraftConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task

KINDS = ("planks", "wool")
"""The kinds of the published recipes. Their members are the things with that last word."""


class AgentGymDemonstrator:
    """A player that reads the recipes from the first observation and then acts as TextCraft's own demonstrator."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: GymConfig) -> None:
        self._task, self._rng, self._skill = task, rng, skill
        self._inner: TextCraftDemonstrator | None = None

    def act(self, observation: str) -> InteractCall:
        """Return the next call. Raises GymError for an environment without a demonstrator."""
        if self._inner is None:
            self._inner = TextCraftDemonstrator(self._read(observation), self._rng, self._skill, TextCraftConfig())
        return self._inner.act(observation)

    def _read(self, observation: str) -> Task:
        recipes, marked, goal = observation.partition("\n\nGoal: craft ")
        if not marked:
            env = self._task.payload["env"]
            raise GymError(
                "demonstrations.no_script",
                f"Environment {env} has no scripted demonstrator. Name a model in demonstrations.policy.",
            )
        lines = recipes.removeprefix("Crafting commands:\n").splitlines()
        recipes_of = Book.read(lines, {}).by_made
        kinds = {kind: [item for item in recipes_of if item.endswith(f" {kind}")] for kind in KINDS}
        payload = {"goal": goal.rstrip("."), "recipes": lines, "kinds": {k: m for k, m in kinds.items() if m}}
        return Task("textcraft", self._task.id, self._task.split, payload)
