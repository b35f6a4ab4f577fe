"""FunctionGym's scripted demonstrator, which knows the rule and computes its value with a given skill."""

from __future__ import annotations

import random
from typing import Any

from userrl_core.gyms.function.gym import show
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class FunctionDemonstrator:
    """A player that tries some numbers, asks for the test case and answers.

    skill: probability that an answer is right; a wrong answer is followed by another one. At skill 1 it asks for the
    test case at once. Below that it first tries up to three sets of numbers, fewer with more skill.
    """

    def __init__(self, task: Task, rng: random.Random, skill: float, config: Any) -> None:
        """Read the task's rule and expected value. skill: in [0, 1]."""
        self._expected = float(task.payload["expected"])
        self._rng = rng
        self._skill = skill
        self._trials = sum(rng.random() > skill for _ in range(3)) if skill < 1 else 0
        self._asked = False

    def act(self, observation: str) -> InteractCall:
        """Return the next call."""
        if self._trials > 0:
            self._trials -= 1
            return InteractCall("action", " ".join(str(self._rng.randint(1, 9)) for _ in range(4)))
        if not self._asked:
            self._asked = True
            return InteractCall("search", "test")
        # No draw at full skill, so that it does not depend on the generator.
        if self._skill >= 1 or self._rng.random() < self._skill:
            return InteractCall("answer", show(self._expected, 12))
        return InteractCall("answer", str(round(self._expected) + self._rng.choice((-3, -2, -1, 1, 2, 3))))
