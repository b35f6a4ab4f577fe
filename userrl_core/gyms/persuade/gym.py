"""PersuadeGym: convince a user to give up a claim, argument by argument (UserRL appendix C).

The user starts at "Strongly Agree" and moves over seven levels. A turn earns the levels gained toward disagreement
divided by six. The paper calls this scaling exponential but states a linear formula; we follow the formula. As
published, the change is measured from the previous stance, so that a user who moves back and forth is rewarded
without end. Here each level is rewarded once, unless `paid` is ``previous``. The released prompts call an argument
``answer``, which is accepted as ``action``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

from pydantic import Field

from userrl_core.errors import JudgeError, TaskError
from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.lazy import lazily
from userrl_core.interact import Choice, InteractCall
from userrl_core.records import Task

Stance = Literal[
    "Strongly Agree", "Agree", "Partly Agree", "Neutral", "Partly Disagree", "Disagree", "Strongly Disagree"
]
STANCES: tuple[str, ...] = get_args(Stance)
"""From full agreement to full disagreement. A stance's index is its level, 0 to 6."""


@dataclass(frozen=True, slots=True)
class ListenerResponse:
    """The user's response to an argument, and the stance after it."""

    response: str
    stance: str


@dataclass(frozen=True, slots=True)
class Rebuttal:
    """An argument against the claim that moves the user. weight: number of levels, 1 or 2."""

    text: str
    weight: int


class PersuadeUser(Protocol):
    """The user who holds the claim."""

    async def respond(self, argument: str, stance: str) -> ListenerResponse:
        """Return the user's response and new stance. stance: the stance before. Raises JudgeError if there is no
        usable reply.
        """


class PersuadeConfig(GymConfig):
    """Rewards of PersuadeGym, with the defaults of appendix C."""

    start: Stance = "Strongly Agree"
    """The user's first stance (appendix C)."""

    per_level: float = Field(default=1 / 6, gt=0.0)
    """Reward of one level toward disagreement (appendix C: levels changed, divided by 6)."""

    paid: Literal["best", "previous"] = "best"
    """Start of the count of a turn's levels. best: the best stance so far (ours: each level earns once). previous: the stance
    before the turn (the paper and the released code).
    """


class PersuadeGym(Gym[PersuadeConfig]):
    """A user to move to "Strongly Disagree" (UserRL appendix C).

    The metric is the sum of turn rewards: the best level reached, divided by six. A stance outside the seven is a failed
    judgement, and the reward is null.
    """

    name = "persuade"
    config_type = PersuadeConfig
    metric = "Sum Turn Reward"
    success_rule = "the user disagrees strongly"
    users: ClassVar[Mapping[str, Any]] = {
        "rule": lazily("userrl_core.gyms.persuade.rule_user:RulePersuadeUser"),
        "openai": lazily("userrl_core.gyms.persuade.llm_user:LLMPersuadeUser"),
        "human": lazily("userrl_core.gyms.persuade.human_user:HumanPersuadeUser"),
    }
    aliases: ClassVar[Mapping[str, str]] = {"answer": "action"}
    hint = "Take up what the user said last, and bring one new reason a turn."
    goal = (
        "The user firmly holds a claim. Change the user's mind: every turn, give an argument against the claim, until the "
        "user strongly disagrees with it."
    )
    choice_help: ClassVar[Mapping[str, str]] = {
        "action": "an argument against the claim. Answer what the user said, and bring a new reason each time."
    }

    def __init__(self, task: Task, user: PersuadeUser | None = None, config: PersuadeConfig | None = None) -> None:
        super().__init__(task, user, config)
        for field in ("claim", "argument"):
            if not isinstance(task.payload.get(field), str) or not task.payload[field].strip():
                raise TaskError("task.invalid_field", f"Task {task.key}: field '{field}' is not a text.")
        rebuttals_of(task)
        self.stance: str = self.config.start
        self.best = STANCES.index(self.config.start)
        self.full_score = (len(STANCES) - 1 - self.best) * self.config.per_level  # type: ignore[misc]

    @staticmethod
    def min_turns(task: Task, config: PersuadeConfig) -> int:
        """Return the length of the gold solution; three turns (two levels each) for a task without one."""
        return len(PersuadeGym.gold(task, config)) or -(-(len(STANCES) - 1 - STANCES.index(config.start)) // 2)

    @classmethod
    def reward_bounds(cls, config: PersuadeConfig) -> RewardBounds:
        """Bound a turn by the gain of all levels."""
        return RewardBounds(0.0, (len(STANCES) - 1 - STANCES.index(config.start)) * config.per_level, math.inf)

    @classmethod
    def gold(cls, task: Task, config: PersuadeConfig) -> list[InteractCall]:
        """Use the task's rebuttals, strongest first, until all levels are gained. Empty for a task without rebuttals
        (published).
        """
        levels_left = len(STANCES) - 1 - STANCES.index(config.start)
        calls = []
        for rebuttal in sorted(rebuttals_of(task), key=lambda r: -r.weight):
            if levels_left <= 0:
                break
            calls.append(InteractCall(Choice.ACTION, rebuttal.text))
            levels_left -= rebuttal.weight
        return calls if levels_left <= 0 else []

    def opening(self) -> str:
        """Return the claim and the user's argument for it."""
        return f"I hold this claim: {self.task.payload['claim']}\n\n{self.task.payload['argument']}"

    def brief(self) -> str:
        """Return the claim only."""
        return str(self.task.payload["claim"])

    async def action(self, content: str) -> Reply:
        """Let the user respond to an argument and state a stance. Levels toward disagreement are rewarded (`paid`)."""
        verdict = await self.user.respond(content, self.stance)
        if verdict.stance not in STANCES:
            raise JudgeError("judge.no_reply", "The stated stance is not one of the seven levels.")
        level = STANCES.index(verdict.stance)
        start = self.best if self.config.paid == "best" else STANCES.index(self.stance)
        reward = max(0, level - start) * self.config.per_level
        self.best = max(self.best, level)
        self.stance = verdict.stance
        done = level == len(STANCES) - 1
        return Reply(verdict.response, reward, done, success=True if done else None, info={"stance": verdict.stance})


def rebuttals_of(task: Task) -> tuple[Rebuttal, ...]:
    """Return the task's rebuttals, an empty list for published tasks. Raises TaskError with the task, the entry and
    the field.
    """
    rebuttals = []
    for i, row in enumerate(task.payload.get("rebuttals", ())):
        if not isinstance(row, Mapping) or not isinstance(row.get("text"), str) or not row["text"].strip():
            raise TaskError("task.invalid_field", f"Task {task.key}, rebuttal {i}: field 'text' is not a text.")
        if row.get("weight") not in (1, 2):
            raise TaskError(
                "task.invalid_field",
                f"Task {task.key}, rebuttal {i}: field 'weight' is {row.get('weight')!r}, not 1 or 2.",
            )
        rebuttals.append(Rebuttal(row["text"], int(row["weight"])))
    return tuple(rebuttals)
