"""TurtleGym: explain the hidden story behind a strange surface (UserRL appendix C, figures 7 and 8).

A question earns nothing and is answered Yes, No or Maybe. An explanation scores the sum of weight x grade over the story's
criteria, with grades in {0, 0.5, 1}. It earns its improvement over the best explanation so far. One that reaches the
threshold ends the episode.

Departures from the released code: scores are exact fractions (there a perfect explanation of 138 stories sums below 1.0 and
never ends the episode). Feedback is numbers (there it quotes the covered criteria). ``search`` is left out (the paper's text
names three choices, its table 1 and the released code two).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from pydantic import Field

from userrl_core.errors import JudgeError
from userrl_core.gyms.base import Gym, GymConfig, Reply
from userrl_core.gyms.lazy import lazily
from userrl_core.gyms.turtle.rule_user import RuleTurtleUser
from userrl_core.interact import InteractCall
from userrl_core.records import Task


class TurtleUser(Protocol):
    """The user who knows the hidden story."""

    async def reply(self, question: str) -> str:
        """Return Yes, No or Maybe; the agent sees nothing else. Raises UserError."""

    async def grade(self, explanation: str) -> list[float]:
        """Return one of 0, 0.5 and 1 for each criterion, in the story's order. Raises JudgeError."""


class TurtleConfig(GymConfig):
    """Rewards of TurtleGym."""

    threshold: float = Field(default=0.9, gt=0.0, le=1.0)
    """Minimum score that ends the episode as a success (released code: 0.9; its training runs: 1.0)."""


class TurtleGym(Gym[TurtleConfig]):
    """A strange story to explain."""

    name = "turtle"
    config_type = TurtleConfig
    metric = "Sum Turn Reward"
    success_rule = "an explanation reached the threshold"
    hint = "Ask for what the story leaves out, and explain it only when the pieces fit."
    goal = (
        "The user tells you the surface of a strange story. Find out what is behind it with yes/no questions, then explain "
        "the hidden story. You may explain more than once; only what an explanation adds to your best one counts."
    )
    choice_help: ClassVar = {
        "action": "ask one yes/no question about the story; the user answers Yes, No or Maybe",
        "answer": "explain the whole hidden story in a few sentences",
    }
    users: ClassVar = {
        "rule": RuleTurtleUser,
        "openai": lazily("userrl_core.gyms.turtle.llm_user:LLMTurtleUser"),
        "human": lazily("userrl_core.gyms.turtle.human_user:HumanTurtleUser"),
    }
    user: TurtleUser

    def __init__(self, task: Task, user: Any = None, config: TurtleConfig | None = None) -> None:
        super().__init__(task, user, config)
        weights = [Fraction(criterion["weight"]) for criterion in task.payload["criteria"]]
        self._weights = [weight / sum(weights) for weight in weights]
        self._threshold = Fraction(str(self.config.threshold))
        self.best = Fraction(0)
        """The best explanation's score so far, exact, in [0, 1]."""

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """Return one question per criterion, plus the explanation. Without the questions it would be a guess."""
        return len(task.payload["criteria"]) + 1

    @classmethod
    def gold(cls, task: Task, config: TurtleConfig) -> list[InteractCall]:
        """Explain the hidden story with every criterion's statement."""
        return [InteractCall("answer", full_explanation(task))]

    def opening(self) -> str:
        """Return the title and the surface."""
        return f"{self.task.payload['title']}\n{self.task.payload['surface']}\nWhat is behind this story?"

    def brief(self) -> str:
        """Return the surface only."""
        return str(self.task.payload["surface"])

    async def action(self, content: str) -> Reply:
        """Answer a question."""
        return Reply(await self.user.reply(content) if content.strip() else "Maybe")

    async def answer(self, content: str) -> Reply:
        """Grade an explanation. Its reward is the improvement over the best one."""
        grades = await self.user.grade(content) if content.strip() else [0.0] * len(self._weights)
        score = self._score(grades)
        reward = float(max(Fraction(0), score - self.best))
        self.best = max(self.best, score)
        done = score >= self._threshold
        released = getattr(self.user, "feedback", "") if content.strip() else ""
        return Reply(released or _feedback(grades, done), reward, done=done, success=done, info={"score": float(score)})

    def _score(self, grades: Sequence[float]) -> Fraction:
        if len(grades) != len(self._weights) or any(grade not in (0.0, 0.5, 1.0) for grade in grades):
            raise JudgeError(
                "judge.no_reply",
                f"The grades {list(grades)!r} are not one of 0, 0.5 or 1 for each of {len(self._weights)} criteria.",
            )
        return sum((w * Fraction(g) for w, g in zip(self._weights, grades, strict=True)), Fraction(0))


def full_explanation(task: Task) -> str:
    """Return every criterion's statement, followed by the hidden story."""
    statements = " ".join(criterion["statement"] for criterion in task.payload["criteria"])
    return f"{statements} {task.payload['bottom']}"


def _feedback(grades: Sequence[float], done: bool) -> str:
    """Report the result in numbers only: a criterion's text would reveal the story."""
    if done:
        return "Yes, that is the story!"
    full, partial = sum(grade == 1.0 for grade in grades), sum(grade == 0.5 for grade in grades)
    if full == partial == 0:
        return "That is not what happened."
    return f"Of {len(grades)} points of the story you have {full} right and {partial} in part. There is more to it."
