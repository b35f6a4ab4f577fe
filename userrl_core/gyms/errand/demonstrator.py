"""The scripted demonstrator of ErrandGym: the next useful step, or a random step with some probability."""

from __future__ import annotations

import random

from userrl_core.gyms.errand.english import ACTS
from userrl_core.gyms.errand.gym import DONE, NO, OK, ErrandConfig
from userrl_core.gyms.wording import Wordings
from userrl_core.interact import CHOICES, InteractCall
from userrl_core.records import Task

TERSE = {
    sentence: terse
    for terse, act in ((NO, ACTS["no"]), (OK, ACTS["ok"]), (DONE, ACTS["done"]))
    for sentence in (*act.train, *act.test)
}
"""The gym's English answers and their terse forms."""


class ErrandDemonstrator:
    """A player of one conversation. With probability 1 - skill a turn is a random choice on a random mentioned thing.

    In a task deeper than `ErrandConfig.demonstrator_depth` all turns are random.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: ErrandConfig) -> None:
        self._chain: list[str] = task.payload["chain"]
        self._rng = rng
        self._skill = skill if len(self._chain) - 1 <= config.demonstrator_depth else 0.0
        self._words = Wordings(ACTS, task) if config.wording == "english" else None
        self._asked, self._held = 0, len(self._chain)
        self._last: InteractCall | None = None

    def act(self, observation: str) -> InteractCall:
        """Return the next call, after learning from the last observation."""
        self._learn(observation if self._words is None else TERSE.get(observation, observation))
        if self._rng.random() < self._skill:
            self._last = self._next()
        else:
            mentioned = self._chain[: self._asked + 1]
            self._last = InteractCall(self._rng.choice(CHOICES), self._rng.choice(mentioned))
        if self._words is not None and self._last.choice == "action":
            return InteractCall("action", self._words.say("ask", thing=self._last.content))
        return self._last

    def _next(self) -> InteractCall:
        if self._held < len(self._chain):
            return InteractCall("answer", self._chain[self._held - 1])
        if self._asked < len(self._chain):
            return InteractCall("action", self._chain[self._asked])
        return InteractCall("search", self._chain[-1])

    def _learn(self, observation: str) -> None:
        if self._last is None or observation in (NO, DONE):
            return
        link = self._chain.index(self._last.content)
        if self._last.choice == "action":
            self._asked = max(self._asked, link + 1)
        elif observation == OK:
            self._held = min(self._held, link)
