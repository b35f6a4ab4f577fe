"""SearchGym's scripted demonstrator: a search for each hop of the question, then the answer."""

from __future__ import annotations

import random

from userrl_core.gyms.search.corpus import corpus
from userrl_core.gyms.search.gym import SearchConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class SearchDemonstrator:
    """A player of one episode. With probability 1 - skill a turn is an unrelated search or answer."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: SearchConfig) -> None:
        self._answer, self._rng, self._skill = task.payload["answer"], rng, skill
        self._hops = list(task.payload["hops"])

    def act(self, observation: str) -> InteractCall:
        """Return the next call. The demonstrator knows the articles."""
        if self._rng.random() >= self._skill:
            title = self._rng.choice(corpus().documents).title
            return InteractCall(self._rng.choice(["search", "answer"]), title)
        if self._hops:
            return InteractCall("search", self._hops.pop(0))
        return InteractCall("answer", self._answer)
