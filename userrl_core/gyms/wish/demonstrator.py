"""The scripted demonstrator of WishGym: it asks, searches and chooses, or acts at random with some probability."""

from __future__ import annotations

import random
import re

from userrl_core.gyms.wish.english import ACTS
from userrl_core.gyms.wish.gym import WishConfig
from userrl_core.gyms.wish.tasks import COLOURS, OPTIONS
from userrl_core.gyms.wording import Wordings
from userrl_core.interact import CHOICES, InteractCall
from userrl_core.records import Task


class WishDemonstrator:
    """A player of one conversation. With probability 1 - skill a turn is a random choice of a garment or a shown option.

    In a task larger than `WishConfig.demonstrator_size` all turns are random. At skill 1 it asks again until the user
    tells the colour. It learns from the words of the answers, which may be a model's sentences.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: WishConfig) -> None:
        self._wished = list(task.payload["wished"])
        self._best: str = task.payload["best"]
        self._rng = rng
        self._skill = skill if len(self._wished) <= config.demonstrator_size else 0.0
        self._words = Wordings(ACTS, task) if config.wording == "english" else None
        self._told: set[str] = set()
        self._shown: list[str] = []
        self._last: InteractCall | None = None

    def act(self, observation: str) -> InteractCall:
        """Learn from the last observation and return the next call."""
        self._learn(observation.lower())
        self._last = self._next() if self._rng.random() < self._skill else self._any()
        if self._words is not None and self._last.choice == "action":
            return InteractCall("action", self._words.say("ask", garment=self._last.content))
        return self._last

    def _next(self) -> InteractCall:
        missing_garments = [garment for garment in self._wished if garment not in self._told]
        if missing_garments:
            return InteractCall("action", missing_garments[0])
        if len(self._shown) != 1:
            return InteractCall("search", "")
        return InteractCall("answer", self._best)

    def _any(self) -> InteractCall:
        choice = self._rng.choice(CHOICES)
        if choice == "action":
            return InteractCall(choice, self._rng.choice(self._wished))
        return InteractCall(choice, self._rng.choice(self._shown or OPTIONS) if choice == "answer" else "")

    def _learn(self, observation: str) -> None:
        if self._last is None:
            return
        if self._last.choice == "action" and any(colour in observation for colour in COLOURS):
            self._told.add(self._last.content)
        if self._last.choice == "search":
            self._shown = [option for option in OPTIONS if option in re.findall(r"[a-z]+", observation)]
