"""WebShop's scripted demonstrator, which finds the elements of the task's plan on the page."""

from __future__ import annotations

import random
import re

from userrl_core.gyms.base import GymConfig
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_ELEMENT = re.compile(r"\[(\d+)\] (\w+) '([^']*)'")


class WebShopDemonstrator:
    """A player of one episode. With probability 1 - skill a turn clicks on a random element of the page."""

    def __init__(self, task: Task, rng: random.Random, skill: float, config: GymConfig) -> None:
        self._rng, self._skill = rng, skill
        self._plan = [tuple(step) for step in task.payload["plan"]]

    def act(self, observation: str) -> InteractCall:
        """Return the next call. A step whose element is missing on the page is tried again from the home page."""
        elements = {(role, name): number for number, role, name in reversed(_ELEMENT.findall(observation))}
        if self._rng.random() >= self._skill:
            return InteractCall("action", f"click [{self._rng.choice([*elements.values()] or ['1'])}]")
        name, *parts = self._plan[0]
        if name == "stop":
            return InteractCall("action", f"stop [{parts[0]}]")
        number = elements.get((parts[0], parts[1]))
        if number is None:
            return InteractCall("action", "goto [http://shop]")
        self._plan.pop(0)
        return InteractCall("action", f"click [{number}]" if name == "click" else f"type [{number}] [{parts[2]}] [1]")
