"""A scripted player of TravelGym that knows what the user wants, and asks for it with a given skill."""

from __future__ import annotations

import random
from typing import Any

from userrl_core.gyms.travel import TravelGym
from userrl_core.gyms.travel_config import TravelConfig
from userrl_core.gyms.travel_world import World
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TravelDemonstrator:
    """Asks for some of the preferences, searches, and chooses among what is left.

    skill: share of the preferences it asks for, drawn one by one; what it did not ask for it does not know. In the tiny tier
    skill 0.5 asks for 0, 1, 1 or 2 of two preferences and earns 0.50 on average: weak on purpose, so that there is something
    to learn. Skill 1 plays the gold solution.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: Any) -> None:
        """task: its preferences and options are read. skill: in [0, 1]."""
        self._rng = rng
        self._config = TravelConfig.for_task(task, config)
        self._plan = TravelGym.gold(task, self._config) if skill >= 1 else self._weak(task, skill)

    def act(self, observation: str) -> InteractCall:
        """The next call of the plan; once it is used up, the last one again."""
        call = self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]
        if call.content:
            return call
        found = observation.split()[1:]
        return InteractCall(call.choice, self._rng.choice(found) if found else "H1")

    def _weak(self, task: Task, skill: float) -> list[InteractCall]:
        aspect = World.of(task.payload).aspects["hotel"]
        count = sum(self._rng.random() < skill for _ in aspect.preferences)
        known = aspect.preferences[:count]
        asks = [InteractCall("action", f"{p.category}?") for p in known]
        query = " ".join(p.preference for p in known) or "hotel"
        return [*asks, InteractCall("search", query), InteractCall("answer", "")]
