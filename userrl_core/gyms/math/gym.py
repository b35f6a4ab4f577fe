"""The math gym: a problem with one integer answer (for mixed-task training as in TARL, section 4.2).

The gym has one choice, ``answer``, and no user. A right answer earns 1.0 and ends the episode, as does the last allowed
answer. An answer with several numbers counts as wrong, so that a list of guesses cannot win.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.interact import InteractCall
from userrl_core.records import Task

_NUMBER = re.compile(r"[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?", re.ASCII)


class MathConfig(GymConfig):
    """Rewards of the math gym."""

    correct: float = 1.0
    """Reward of a right answer (TARL: outcome reward 1)."""

    wrong: float = 0.0
    """Reward of a wrong answer (TARL: 0)."""

    attempts: int = Field(default=1, ge=1)
    """Number of answers allowed (ours: 1)."""


class MathGym(Gym[MathConfig]):
    """A problem with an integer answer."""

    name = "math"
    config_type = MathConfig
    metric = "Final Answer Exact Match"
    success_rule = "the right number was given"
    goal = "Solve the problem and hand in its answer, a whole number."
    choice_help: ClassVar = {"answer": "the whole number alone, e.g. '42'"}
    min_turns = 1

    @classmethod
    def reward_bounds(cls, config: MathConfig) -> RewardBounds:
        """Bound the rewards of right and wrong answers."""
        return RewardBounds.of_answers(config.correct, config.wrong)

    @classmethod
    def gold(cls, task: Task, config: MathConfig) -> list[InteractCall]:
        """Give the answer."""
        return [InteractCall("answer", str(task.payload["answer"]))]

    def opening(self) -> str:
        """Return the problem."""
        self._answers = 0
        return str(self.task.payload["question"])

    async def answer(self, content: str) -> Reply:
        """Compare the number in the answer with the right one."""
        self._answers += 1
        number = read_integer(content)
        if number == self.task.payload["answer"]:
            return Reply("That is right.", self.config.correct, done=True, success=True)
        observation = (
            "That is not right." if number is not None else "The answer must hold exactly one number, a whole one."
        )
        done = self._answers >= self.config.attempts
        return Reply(observation, self.config.wrong, done=done, success=False)


def read_integer(text: str) -> int | None:
    r"""Return the only number in a text if it is an integer (``x = 42``, ``\boxed{1,024}``, ``7.0``), else None.

    Several numbers give None; otherwise a list of guesses would count as an answer.
    """
    numbers = _NUMBER.findall(text)
    if len(numbers) != 1 or len(numbers[0]) > 30:
        return None
    integer, _, fraction = numbers[0].replace(",", "").replace("−", "-").partition(".")
    return int(integer) if not fraction.strip("0") else None
