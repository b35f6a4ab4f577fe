"""The math gym: a problem, one integer answer (for mixed-task training as in TARL, section 4.2).

There is nobody to ask: the only choice is ``answer``. A right one earns 1.0; the attempt ends with it, or when the allowed
answers are used up. Several numbers in one answer are none: a list of guesses must not win.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from userrl_core.gyms.base import Gym, GymConfig, Pay, Reply
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
    """How many answers may be given (ours: 1, a math problem is answered once)."""


class MathGym(Gym[MathConfig]):
    """Solve a problem with an integer answer."""

    name = "math"
    config_type = MathConfig
    metric = "Final Answer Exact Match"
    goal = "Solve the problem and hand in its answer, a whole number."
    choice_help: ClassVar = {"answer": "the whole number alone, e.g. '42'"}
    min_turns = 1

    @classmethod
    def pay(cls, config: MathConfig) -> Pay:
        """Right and wrong answers."""
        return Pay.of_answers(config.correct, config.wrong)

    @classmethod
    def gold(cls, task: Task, config: MathConfig) -> list[InteractCall]:
        """The answer."""
        return [InteractCall("answer", str(task.payload["answer"]))]

    def opening(self) -> str:
        """The problem."""
        return str(self.task.payload["question"])

    async def answer(self, content: str) -> Reply:
        """Compare the one number in the answer with the truth."""
        given = read_integer(content)
        if given == self.task.payload["answer"]:
            return Reply("That is right.", self.config.correct, done=True, success=True)
        last = self.turns >= self.config.attempts
        said = "That is not right." if given is not None else "The answer must hold exactly one number, a whole one."
        return Reply(said, self.config.wrong, done=last, success=False)


def read_integer(text: str) -> int | None:
    r"""The only number in a text when it is whole (``x = 42``, ``\boxed{1,024}``, ``7.0``), else None.

    Several numbers are no answer: otherwise a list of guesses would be one.
    """
    found = _NUMBER.findall(text)
    if len(found) != 1 or len(found[0]) > 30:
        return None
    whole, _, fraction = found[0].replace(",", "").replace("−", "-").partition(".")
    return int(whole) if not fraction.strip("0") else None
