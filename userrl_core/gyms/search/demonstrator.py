"""The scripted demonstrator of SearchGym: looks up each hop of the question, then answers."""

from __future__ import annotations

import random

from userrl_core.gyms.search.corpus import corpus
from userrl_core.gyms.search.gym import SearchConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class SearchDemonstrator:
    """Plays one attempt. With probability 1 - skill a turn is a search or an answer about something else."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: SearchConfig) -> None:
        self._truth, self._rng, self._skill = task.payload["answer"], rng, skill
        self._hops = list(task.payload["hops"])

    def act(self, observation: str) -> InteractCall:
        """The next call; what the articles say is known beforehand."""
        if self._rng.random() >= self._skill:
            title = self._rng.choice(corpus().documents).title
            return InteractCall(self._rng.choice(["search", "answer"]), title)
        if self._hops:
            return InteractCall("search", self._hops.pop(0))
        return InteractCall("answer", self._truth)
