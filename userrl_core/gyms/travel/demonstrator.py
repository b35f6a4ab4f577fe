"""TravelGym's scripted demonstrator, which knows the preferences and asks for some of them, depending on its skill."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from userrl_core.gyms.travel.config import TravelConfig
from userrl_core.gyms.travel.english import ACTS
from userrl_core.gyms.travel.gym import TravelGym
from userrl_core.gyms.travel.rule_user import query_for, question_for
from userrl_core.gyms.travel.world import Aspect, Preference, World, meets, total_cost
from userrl_core.gyms.wording import Wordings
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TravelDemonstrator:
    """A player that asks for some of the preferences, searches, and chooses by those preferences.

    skill: probability of asking for a preference, unless `TravelConfig.demonstrator_skill` is set; it ignores the others. In
    the tiny tier skill 0.5 asks for 0, 1, 1 or 2 of two preferences and earns 0.50 on average: deliberately weak, so that RL
    can improve on it. In the other tiers it ignores noise options and takes the cheapest option that meets the known
    preferences. Skill 1 follows the gold solution.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: Any) -> None:
        """Plan the calls from the task's preferences and options. skill: in [0, 1]."""
        self._rng = rng
        settings = TravelConfig.for_task(task, config)
        skill = skill if settings.demonstrator_skill is None else settings.demonstrator_skill
        english = settings.in_english(task)
        self._words = Wordings(ACTS, task) if english else None
        if skill >= 1 and not english:
            self._plan = TravelGym.gold(task, settings)
        elif task.tier == "tiny":
            self._plan = self._tiny(task, skill)
        else:
            self._plan = self._full(task, skill)

    def act(self, observation: str) -> InteractCall:
        """Return the next call of the plan. The last call is repeated."""
        call = self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]
        if call.content:
            return call
        ids = re.findall(r"H\d", observation)
        return InteractCall(call.choice, self._rng.choice(ids) if ids else "H1")

    def _tiny(self, task: Task, skill: float) -> list[InteractCall]:
        aspect = World.of(task.payload).aspects["hotel"]
        count = sum(self._rng.random() < skill for _ in aspect.preferences)
        known_preferences = aspect.preferences[:count]
        questions = [InteractCall("action", self._question(p)) for p in known_preferences]
        query = " ".join(p.preference for p in known_preferences) or "hotel"
        # `act` replaces an empty answer by one of the ids in the search results.
        return [*questions, InteractCall("search", query), InteractCall("answer", "")]

    def _question(self, preference: Preference) -> str:
        if self._words is None:
            return question_for(preference, "tiny")
        return self._words.say("ask", category=preference.category)

    def _full(self, task: Task, skill: float) -> list[InteractCall]:
        world = World.of(task.payload)
        known_preferences = [p for p in world.preferences.values() if self._rng.random() < skill]
        questions = [InteractCall("action", question_for(p, task.tier)) for p in known_preferences]
        searches = [InteractCall("search", query_for(aspect, task.tier)) for aspect in world.aspects.values()]
        chosen_ids = []
        for name, aspect in world.aspects.items():
            notes = task.payload["aspects"][name]["notes"]
            candidates = [option for option in aspect.options if notes[option["id"]]["type"] != "noise"]
            chosen_ids.append(self._choose(aspect, [p for p in known_preferences if p.aspect == name], candidates))
        return [*questions, *searches, InteractCall("answer", ", ".join(chosen_ids))]

    def _choose(
        self, aspect: Aspect, preferences: Sequence[Preference], candidates: Sequence[Mapping[str, Any]]
    ) -> str:
        # Published preferences have no rule to check options with: whoever knows all of them takes the best option.
        if not all(p.rule for p in preferences):
            complete = len(preferences) == len(aspect.preferences)
            return aspect.best if complete else str(self._rng.choice(candidates)["id"])
        matching = [option for option in candidates if all(meets(option, p.rule) for p in preferences)]
        return str(min(matching, key=lambda option: (total_cost(option, preferences), option["id"]))["id"])
