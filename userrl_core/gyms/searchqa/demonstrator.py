"""SearchQA's scripted demonstrator: a search for each hop of the question, then the answer."""

from __future__ import annotations

import random
from collections.abc import Sequence

from userrl_core.gyms.pool import THINGS
from userrl_core.gyms.searchqa.corpus import corpus
from userrl_core.gyms.searchqa.gym import SearchQAConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class SearchQADemonstrator:
    """A player of one episode. With probability 1 - skill a turn searches for another thing, or answers with it.

    It follows the first `SearchQAConfig.demonstrator_hops` hops of a question. If there are more, all later turns are random.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: SearchQAConfig) -> None:
        self._answer, self._rng, self._skill = task.payload["answers"][0], rng, skill
        self._hops = list(task.payload["hops"])
        self._unknown = max(len(self._hops) - config.demonstrator_hops, 0)
        """Number of hops at the end that it cannot follow."""
        titles = [document.title for document in corpus().documents]
        self._things: Sequence[str] = THINGS if task.payload.get("short") else titles

    def act(self, observation: str) -> InteractCall:
        """Return the next call. The demonstrator knows the articles."""
        if self._rng.random() >= self._skill or 0 < len(self._hops) <= self._unknown:
            return InteractCall(self._rng.choice(["search", "answer"]), self._rng.choice(self._things))
        if self._hops:
            return InteractCall("search", self._hops.pop(0))
        return InteractCall("answer", self._answer)
