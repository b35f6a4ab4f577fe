"""The scripted demonstrator of TextCraft: a shortest plan or trial and error, with random turns in between."""

from __future__ import annotations

import random

from userrl_core.gyms.textcraft.gym import CRAFTED, OK, TextCraftConfig, book_of, command, shortest
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TextCraftDemonstrator:
    """A player of one episode. With probability 1 - skill a turn fetches or crafts a random thing of the recipes.

    For a goal deeper than `TextCraftConfig.demonstrator_depth` all turns are random.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: TextCraftConfig) -> None:
        book = book_of(task)
        self._way = (
            _Trial(task) if config.demonstrator == "trial" and task.payload.get("short") else _CraftingPlan(task)
        )
        self._crafts = [command(recipe, task) for recipe in book.recipes]
        self._anything = [*(command((item, 1), task) for item in sorted(book.fetchable)), *self._crafts]
        self._rng = rng
        self._skill = skill if int(task.tier.removeprefix("depth-") or 1) <= config.demonstrator_depth else 0.0
        self._strayed: str | None = None
        """The last turn's random command; None if the last turn followed the plan."""

    def act(self, observation: str) -> InteractCall:
        """Return the next call."""
        if self._strayed is None:
            self._way.heard(observation)
        elif self._strayed in self._crafts and (observation == OK or observation.startswith(CRAFTED)):
            self._way.disturbed()
        if self._rng.random() < self._skill:
            self._strayed = None
            return InteractCall("action", self._way.next())
        self._strayed = self._rng.choice(self._anything)
        return InteractCall("action", self._strayed)


class _CraftingPlan:
    """The shortest plan. It starts again once a random craft may have used up a part."""

    def __init__(self, task: Task) -> None:
        self._steps = [command(step, task) for step in shortest(task)]
        self._at = 0

    def heard(self, observation: str) -> None:
        """Do nothing: a plan needs no observations."""

    def disturbed(self) -> None:
        self._at = 0

    def next(self) -> str:
        self._at = min(self._at + 1, len(self._steps))
        return self._steps[self._at - 1]


class _Trial:
    """Trial and error: try the goal, read the missing part, get that first. Needs the tiny tier's answers but no recipes."""

    def __init__(self, task: Task) -> None:
        self._wanted = [str(task.payload["goal"])]
        self._said = False

    def heard(self, observation: str) -> None:
        if not self._said:  # the opening
            return
        if observation == OK:
            self._wanted = self._wanted[:-1] or self._wanted
        else:
            self._wanted.append(observation)

    def disturbed(self) -> None:
        """Do nothing: used-up parts will be reported as missing."""

    def next(self) -> str:
        self._said = True
        return self._wanted[-1]
