"""The offline traveller of TravelGym: reads questions by the words they use (UserBench appendix B, without a model)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from userrl_core.gyms.tasks.travel_tiny import CATEGORIES
from userrl_core.gyms.travel_world import Aspect, Judgement, Preference, Said, SearchJudgement, World
from userrl_core.records import Task
from userrl_core.users.rule.stems import words


class RuleTravelUser:
    """Judges a message by the categories it names, a search by its arguments; says preferences as the task words them."""

    def __init__(self, task: Task, rng: random.Random, **options: Any) -> None:
        """task: its preferences and arguments are what the user knows."""
        self._world = World.of(task.payload)

    async def judge(self, utterance: str, history: Sequence[Said]) -> Judgement:
        """Held or not held by the category named, too vague when none or several are, else other."""
        named = [word for word in words(utterance) if word in CATEGORIES]
        if len(set(named)) != 1:
            return Judgement("too_vague" if named else "other")
        for preference in self._world.preferences.values():
            if preference.category == named[0]:
                return Judgement("held", preference.id)
        return Judgement("not_held")

    async def match(self, query: str, history: Sequence[Said]) -> SearchJudgement:
        """The only aspect."""
        return SearchJudgement("match", next(iter(self._world.aspects)))

    async def reveal(self, utterance: str, preference: Preference, history: Sequence[Said], *, asked: bool) -> str:
        """The preference in the task's own indirect words."""
        return preference.implicit

    async def chat(self, utterance: str, history: Sequence[Said]) -> str:
        """A neutral word."""
        return "any"


def question_for(preference: Preference, terse: bool) -> str:
    """A question that this user takes as asking for the preference."""
    return f"{preference.category}?"


def query_for(aspect: Aspect, terse: bool) -> str:
    """A query that this user takes as a search for the aspect."""
    return " ".join(p.preference for p in aspect.preferences)
