"""TelepathyGym: guess the user's entity with yes/no questions (UserRL appendix C, figures 9 and 10).

A question earns nothing and is answered Yes, No or Maybe. A right guess earns 1.0 and ends the episode. A wrong one earns
0.0, and the game continues until the horizon, as in the paper.

Departures from the released code: a rule compares names before the judge is called. A judge's ``yes`` counts in any case
(there only ``Yes``). The unused history of clues is not kept.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.lazy import lazily
from userrl_core.gyms.telepathy.rule_user import RuleTelepathyUser
from userrl_core.gyms.telepathy.tasks import questions_needed
from userrl_core.interact import InteractCall
from userrl_core.records import Task

PUBLISHED_QUESTIONS = 4
"""Questions of a full-skill agent about a released entity. Without an attribute table they cannot be counted (ours)."""


class TelepathyUser(Protocol):
    """The user who has an entity in mind."""

    async def reply(self, question: str) -> str:
        """Return Yes, No or Maybe; the agent sees nothing else. Raises UserError."""

    async def matches(self, guess: str) -> bool:
        """Return whether a guess names the entity. Raises JudgeError."""


class TelepathyConfig(GymConfig):
    """Rewards of TelepathyGym."""

    correct: float = 1.0
    """Reward of a right guess (appendix C: 1.0)."""

    wrong: float = 0.0
    """Reward of a wrong guess (appendix C: 0.0)."""

    wrong_guess_ends: bool = False
    """Whether a wrong guess ends the episode (appendix C: only a right one does)."""


class TelepathyGym(Gym[TelepathyConfig]):
    """A user's entity to guess."""

    name = "telepathy"
    config_type = TelepathyConfig
    metric = "Final Guess Correctness"
    success_rule = "the right thing was named, after wrong guesses or at once"
    hint = "Halve what is possible with every question, and guess once little is left."
    goal = (
        "The user has one thing in mind and tells you its category. Narrow it down with yes/no questions, then name it. "
        "The user answers Yes, No or Maybe."
    )
    choice_help: ClassVar = {
        "action": "ask one yes/no question, e.g. 'Can it fly?'",
        "answer": "name the thing, e.g. 'Eagle'; only the name counts",
    }
    users: ClassVar = {
        "rule": RuleTelepathyUser,
        "openai": lazily("userrl_core.gyms.telepathy.llm_user:LLMTelepathyUser"),
        "human": lazily("userrl_core.gyms.telepathy.human_user:HumanTelepathyUser"),
    }
    user: TelepathyUser

    @staticmethod
    def min_turns(task: Task, config: GymConfig) -> int:
        """Return the number of questions that identify the entity, plus the guess."""
        return 1 + (questions_needed(task) if task.payload["yes"] is not None else PUBLISHED_QUESTIONS)

    @classmethod
    def reward_bounds(cls, config: TelepathyConfig) -> RewardBounds:
        """Bound the rewards of right and wrong guesses."""
        return RewardBounds.of_answers(config.correct, config.wrong)

    @classmethod
    def gold(cls, task: Task, config: TelepathyConfig) -> list[InteractCall]:
        """Give the right guess."""
        return [InteractCall("answer", task.payload["title"])]

    def opening(self) -> str:
        """Return the user's sentence about the category."""
        return str(self.task.payload["opening"])

    def brief(self) -> str:
        """Return the category only."""
        return f"Guess my {self.task.payload['category'].replace('_', ' ')}."

    async def action(self, content: str) -> Reply:
        """Answer a question."""
        if not content.strip():
            return Reply("Maybe")
        return Reply(await self.user.reply(content))

    async def answer(self, content: str) -> Reply:
        """Judge a guess."""
        right = bool(content.strip()) and await self.user.matches(content)
        released = getattr(self.user, "feedback", "") if content.strip() else ""
        if right:
            return Reply(released or "Yes, that is it!", self.config.correct, done=True, success=True)
        return Reply(
            released or "No, that is not it.", self.config.wrong, done=self.config.wrong_guess_ends, success=False
        )
