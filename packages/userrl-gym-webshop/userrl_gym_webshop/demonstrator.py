"""WebShop's scripted demonstrator, which finds the elements of the task's plan on the page."""

from __future__ import annotations

import random
import re

from userrl_core.gyms.base import GymConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from userrl_gym_webshop.gym import NO

_ELEMENT = re.compile(r"\[(\d+)\] (\w+) '([^']*)'")
_SHORT_ELEMENT = re.compile(r"(\d+) ()([a-z]+)")


class WebShopDemonstrator:
    """A player of one episode. With probability 1 - skill a turn clicks on a random element of the page.

    In the short tier such a turn may also type a word of the objective. If it changed the page, the plan begins anew.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: GymConfig) -> None:
        self._rng, self._skill = rng, skill
        self._steps = [tuple(step) for step in task.payload["plan"]]
        self._plan = list(self._steps)
        self._words: list[str] = task.payload["words"].split() if task.payload.get("short") else []
        self._strayed = False

    def act(self, observation: str) -> InteractCall:
        """Return the next call. A step whose element is missing on the page is tried again from the home page."""
        pattern = _SHORT_ELEMENT if self._words else _ELEMENT
        elements = {(role, name): number for number, role, name in reversed(pattern.findall(observation))}
        if self._words and self._strayed and observation != NO:
            self._plan = list(self._steps)
        self._strayed = self._rng.random() >= self._skill
        if self._strayed:
            number = self._rng.choice([*elements.values()] or ["1"])
            if self._words and self._rng.random() < 0.5:
                return InteractCall("action", f"type [{number}] [{self._rng.choice(self._words)}]")
            return InteractCall("action", f"click [{number}]")
        name, *parts = self._plan[0]
        if name == "stop":
            return InteractCall("action", f"stop [{parts[0]}]")
        found = elements.get(("" if self._words else parts[0], parts[1]))
        if found is None:
            return InteractCall("action", "goto [http://shop]")
        self._plan.pop(0)
        enter = "" if self._words else " [1]"
        return InteractCall("action", f"click [{found}]" if name == "click" else f"type [{found}] [{parts[2]}]{enter}")
