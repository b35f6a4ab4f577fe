"""A scripted player of TravelGym that knows what the user wants, and asks for it with a given skill."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from userrl_core.gyms.travel.config import TravelConfig
from userrl_core.gyms.travel.gym import TravelGym
from userrl_core.gyms.travel.rule_user import query_for, question_for
from userrl_core.gyms.travel.world import Aspect, Preference, World, meets, total
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TravelDemonstrator:
    """Asks for some of the preferences, searches, and chooses by what it was told.

    skill: share of the preferences it asks for, drawn one by one; what it did not ask for it does not know. In the tiny tier
    skill 0.5 asks for 0, 1, 1 or 2 of two preferences and earns 0.50 on average: weak on purpose, so that there is something
    to learn. In the other tiers it sees through noise and takes the cheapest option that meets what it knows. Skill 1 plays the
    gold solution.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: Any) -> None:
        """task: its preferences and options are read. skill: in [0, 1]."""
        self._rng = rng
        settings = TravelConfig.for_task(task, config)
        if skill >= 1:
            self._plan = TravelGym.gold(task, settings)
        elif task.tier == "tiny":
            self._plan = self._tiny(task, skill)
        else:
            self._plan = self._full(task, skill)

    def act(self, observation: str) -> InteractCall:
        """The next call of the plan; once it is used up, the last one again."""
        call = self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]
        if call.content:
            return call
        found = observation.split()[1:]
        return InteractCall(call.choice, self._rng.choice(found) if found else "H1")

    def _tiny(self, task: Task, skill: float) -> list[InteractCall]:
        aspect = World.of(task.payload).aspects["hotel"]
        count = sum(self._rng.random() < skill for _ in aspect.preferences)
        known = aspect.preferences[:count]
        asks = [InteractCall("action", question_for(p, task.tier)) for p in known]
        query = " ".join(p.preference for p in known) or "hotel"
        # An empty answer is filled with one of the ids that the search shows.
        return [*asks, InteractCall("search", query), InteractCall("answer", "")]

    def _full(self, task: Task, skill: float) -> list[InteractCall]:
        world = World.of(task.payload)
        known = [p for p in world.preferences.values() if self._rng.random() < skill]
        asks = [InteractCall("action", question_for(p, task.tier)) for p in known]
        finds = [InteractCall("search", query_for(aspect, task.tier)) for aspect in world.aspects.values()]
        chosen = []
        for name, aspect in world.aspects.items():
            notes = task.payload["aspects"][name]["notes"]
            sound = [option for option in aspect.options if notes[option["id"]]["type"] != "noise"]
            chosen.append(self._choose(aspect, [p for p in known if p.aspect == name], sound))
        return [*asks, *finds, InteractCall("answer", ", ".join(chosen))]

    def _choose(self, aspect: Aspect, known: Sequence[Preference], sound: Sequence[Mapping[str, Any]]) -> str:
        # Published preferences have no rule that a script could check: knowing all of them is knowing the best.
        if not all(p.rule for p in known):
            complete = len(known) == len(aspect.preferences)
            return aspect.best if complete else str(self._rng.choice(sound)["id"])
        fitting = [option for option in sound if all(meets(option, p.rule) for p in known)]
        return str(min(fitting, key=lambda option: (total(option, known), option["id"]))["id"])
