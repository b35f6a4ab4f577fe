"""Talk a user out of a claim, argument by argument (UserRL appendix C, PersuadeGym).

The user starts at "Strongly Agree" and may move over seven levels. A turn earns the levels won toward disagreement divided
by six. The paper calls this scaling exponential and states a linear formula; the formula holds here. As published the change
is taken against the previous stance, so that a wavering user pays for ever; here each level pays once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

from pydantic import Field

from userrl_core.errors import JudgeError, TaskError
from userrl_core.gyms.base import Gym, GymConfig, Pay, Reply
from userrl_core.gyms.lazy import lazily
from userrl_core.interact import Choice, InteractCall
from userrl_core.records import Task

Stance = Literal[
    "Strongly Agree", "Agree", "Partly Agree", "Neutral", "Partly Disagree", "Disagree", "Strongly Disagree"
]
STANCES: tuple[str, ...] = get_args(Stance)
"""From full agreement to full disagreement; a stance's index is its level, 0 to 6."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the user says to an argument, and where it stands after it."""

    response: str
    stance: str


@dataclass(frozen=True, slots=True)
class Rebuttal:
    """A point against the claim that the user has no good answer to. weight: levels that it is worth, 1 or 2."""

    text: str
    weight: int


class PersuadeUser(Protocol):
    """Holds the claim and hears arguments against it."""

    async def hear(self, argument: str, stance: str) -> Verdict:
        """The user's response and new stance. stance: where it stood before. Raises JudgeError when it cannot be had."""
        ...


class PersuadeConfig(GymConfig):
    """Rewards of PersuadeGym, as appendix C gives them."""

    start: Stance = "Strongly Agree"
    """The user's first stance (appendix C)."""

    per_level: float = Field(default=1 / 6, gt=0.0)
    """Reward of one level toward disagreement (appendix C: levels changed, divided by 6)."""


class PersuadeGym(Gym[PersuadeConfig]):
    """Move the user to "Strongly Disagree" (UserRL appendix C).

    The metric is the sum of turn rewards: the best level reached over six. A stance that is not one of the seven is a
    failure of the judgement, so that the reward is null.
    """

    name = "persuade"
    config_type = PersuadeConfig
    metric = "Sum Turn Reward"
    users: ClassVar[Mapping[str, Any]] = {
        "rule": lazily("userrl_core.gyms.persuade.rule_user:RulePersuadeUser"),
        "openai": lazily("userrl_core.gyms.persuade.llm_user:LLMPersuadeUser"),
        "human": lazily("userrl_core.gyms.persuade.human_user:HumanPersuadeUser"),
    }
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
                raise TaskError(f"Task {task.key}: field '{field}' is not a text.")
        rebuttals_of(task)
        self.stance: str = self.config.start
        self.best = STANCES.index(self.config.start)
        self.full_score = (len(STANCES) - 1 - self.best) * self.config.per_level  # type: ignore[misc]

    @staticmethod
    def min_turns(task: Task, config: PersuadeConfig) -> int:
        """The turns of the gold solution; three (two levels a turn) where a task has none."""
        return len(PersuadeGym.gold(task, config)) or -(-(len(STANCES) - 1 - STANCES.index(config.start)) // 2)

    @classmethod
    def pay(cls, config: PersuadeConfig) -> Pay:
        """All levels in one turn at most."""
        return Pay(0.0, (len(STANCES) - 1 - STANCES.index(config.start)) * config.per_level, math.inf)

    @classmethod
    def gold(cls, task: Task, config: PersuadeConfig) -> list[InteractCall]:
        """The task's rebuttals, strongest first, until six levels are won. Empty where the task has none (published ones)."""
        missing = len(STANCES) - 1 - STANCES.index(config.start)
        calls = []
        for rebuttal in sorted(rebuttals_of(task), key=lambda r: -r.weight):
            if missing <= 0:
                break
            calls.append(InteractCall(Choice.ACTION, rebuttal.text))
            missing -= rebuttal.weight
        return calls if missing <= 0 else []

    def opening(self) -> str:
        """The claim, and why the user holds it."""
        return f"I hold this claim: {self.task.payload['claim']}\n\n{self.task.payload['argument']}"

    def brief(self) -> str:
        """The bare claim."""
        return str(self.task.payload["claim"])

    async def action(self, content: str) -> Reply:
        """An argument: the user answers and says where it stands; only levels never reached before pay."""
        verdict = await self.user.hear(content, self.stance)
        if verdict.stance not in STANCES:
            raise JudgeError("The user's stance is none of the seven levels.")
        level = STANCES.index(verdict.stance)
        reward = max(0, level - self.best) * self.config.per_level
        self.best = max(self.best, level)
        self.stance = verdict.stance
        done = level == len(STANCES) - 1
        return Reply(verdict.response, reward, done, success=True if done else None, info={"stance": verdict.stance})


def rebuttals_of(task: Task) -> tuple[Rebuttal, ...]:
    """The task's rebuttals; none for published tasks. Raises TaskError naming the task, the entry and the field."""
    found = []
    for i, row in enumerate(task.payload.get("rebuttals", ())):
        if not isinstance(row, Mapping) or not isinstance(row.get("text"), str) or not row["text"].strip():
            raise TaskError(f"Task {task.key}, rebuttal {i}: field 'text' is not a text.")
        if row.get("weight") not in (1, 2):
            raise TaskError(f"Task {task.key}, rebuttal {i}: field 'weight' is {row.get('weight')!r}, not 1 or 2.")
        found.append(Rebuttal(row["text"], int(row["weight"])))
    return tuple(found)
