"""The gyms' scripted demonstrators as a policy: they know the task and follow its solution with a given skill."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.gyms.base import Gym
from userrl_core.gyms.prompt import without_turns_left
from userrl_core.gyms.registry import demonstrator_class
from userrl_core.interact import render_call
from userrl_core.policies.base import Session
from userrl_core.records import Message, PolicyReply


class ScriptedPolicy:
    """A policy that plays every gym with the gym's own demonstrator.

    skill: 0 is almost random, 1 plays the gold solution. Raises ConfigError outside [0, 1].
    """

    def __init__(self, skill: float = 1.0) -> None:
        if not 0.0 <= skill <= 1.0:
            raise ConfigError("argument.out_of_range", f"The skill of a demonstrator is between 0 and 1, not {skill}.")
        self.skill = skill
        self.name = f"scripted(skill={skill:g})"

    def session(self, gym: Gym[Any], seed: int) -> Session:
        """Return the gym's demonstrator for this task, with its own generator."""
        demonstrator = demonstrator_class(gym.name)
        return _ScriptedSession(demonstrator(gym.task, random.Random(seed), self.skill, gym.config))


class _ScriptedSession:
    def __init__(self, demonstrator: Any) -> None:
        self._demonstrator = demonstrator

    async def act(self, new: Sequence[Message]) -> PolicyReply:
        # An opening has only its content, which some gyms' demonstrators read.
        observation = str(new[-1].get("observation", without_turns_left(str(new[-1]["content"]))))
        return PolicyReply(text=render_call(self._demonstrator.act(observation)))
