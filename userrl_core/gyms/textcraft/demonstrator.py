"""The scripted demonstrator of TextCraft: plays a shortest plan, or finds out by trial, or now and then does any thing."""

from __future__ import annotations

import random

from userrl_core.gyms.textcraft.gym import CRAFTED, OK, TextCraftConfig, book_of, command, shortest
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TextCraftDemonstrator:
    """Plays one episode. With probability 1 - skill a turn fetches or crafts any thing that the recipes name.

    A goal deeper than `TextCraftConfig.demonstrator_depth` is played at random throughout.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: TextCraftConfig) -> None:
        book = book_of(task)
        self._way = (
            _Trial(task) if config.demonstrator == "trial" and task.payload.get("short") else _CraftingPlan(task)
        )
        self._crafts = [command(recipe, task) for recipe in book.recipes]
        self._anything = [*(command((thing, 1), task) for thing in sorted(book.fetchable)), *self._crafts]
        self._rng = rng
        self._skill = skill if int(task.tier.removeprefix("depth-") or 1) <= config.demonstrator_depth else 0.0
        self._strayed: str | None = None
        """What the last turn did outside of its way."""

    def act(self, observation: str) -> InteractCall:
        """The next call."""
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
    """The shortest plan, from its beginning again once a craft outside of it may have used up a part."""

    def __init__(self, task: Task) -> None:
        self._steps = [command(step, task) for step in shortest(task)]
        self._at = 0

    def heard(self, observation: str) -> None:
        """A plan needs no answers."""

    def disturbed(self) -> None:
        self._at = 0

    def next(self) -> str:
        self._at = min(self._at + 1, len(self._steps))
        return self._steps[self._at - 1]


class _Trial:
    """Tries to make the goal, is told what is missing, gets that first: needs the tiny tier's answers, and no look at recipes."""

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
        """Whatever was used up will be told as missing."""

    def next(self) -> str:
        self._said = True
        return self._wanted[-1]
