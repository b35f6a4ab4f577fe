"""IntentionGym: find out what a vague request leaves open, one question at a time (UserRL appendix C).

Each task has missing details of importance 1 to 3. A question earns the base reward of the most important detail that it asks
for, minus a penalty for every further detail in the same message. Asking for everything at once earns nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from pydantic import Field

from userrl_core.errors import JudgeError, TaskError
from userrl_core.gyms.base import Gym, GymConfig, Reply, RewardBounds
from userrl_core.gyms.lazy import lazily
from userrl_core.interact import Choice, InteractCall
from userrl_core.records import Task


@dataclass(frozen=True, slots=True)
class Detail:
    """A detail missing in the request. importance: 1 low, 2 medium, 3 high. inquiry: a question that asks for it."""

    description: str
    importance: int
    inquiry: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and the user's answer."""

    question: str
    answer: str


class IntentionUser(Protocol):
    """The user, who replies and judges. Only the judging side knows the missing details."""

    async def reply(self, question: str, conversation: Sequence[Exchange]) -> str:
        """Return the user's answer. Raises UserError."""

    async def covered(self, question: str, remaining: Sequence[Detail]) -> Sequence[int]:
        """Return the indices into ``remaining`` (from 0) of the details that the question asks for. Raises JudgeError."""


class IntentionConfig(GymConfig):
    """Rewards of IntentionGym, with the defaults of appendix C."""

    high: float = Field(default=1.0, ge=0.0)
    """Base reward of a detail of importance 3 (appendix C)."""

    medium: float = Field(default=0.7, ge=0.0)
    """Base reward of a detail of importance 2 (appendix C)."""

    low: float = Field(default=0.4, ge=0.0)
    """Base reward of a detail of importance 1 (appendix C)."""

    multi_penalty: float = Field(default=0.2, ge=0.0)
    """Penalty for each detail after the first in one message. The turn's reward stays at or above 0 (appendix C)."""

    def base(self, importance: int) -> float:
        """Return the base reward of an importance."""
        return {3: self.high, 2: self.medium, 1: self.low}[importance]


class IntentionGym(Gym[IntentionConfig]):
    """A vague request with missing details (UserRL appendix C).

    The metric is the sum of turn rewards; its maximum is the task's sum of base rewards. Every detail is rewarded
    once, even if the judge names it again.
    """

    name = "intention"
    config_type = IntentionConfig
    metric = "Sum Turn Reward"
    success_rule = "every missing detail was asked for"
    users: ClassVar[Mapping[str, Any]] = {
        "rule": lazily("userrl_core.gyms.intention.rule_user:RuleIntentionUser"),
        "openai": lazily("userrl_core.gyms.intention.llm_user:LLMIntentionUser"),
        "human": lazily("userrl_core.gyms.intention.human_user:HumanIntentionUser"),
    }
    hint = "Ask about the missing detail that matters most, one at a time."
    goal = (
        "The user's request leaves out details that decide how it should be carried out. Find out what they are by asking; "
        "do not carry out the request itself."
    )
    choice_help: ClassVar[Mapping[str, str]] = {
        "action": "one clarifying question to the user. Ask for one thing at a time: questions that cover several count less."
    }

    def __init__(self, task: Task, user: IntentionUser | None = None, config: IntentionConfig | None = None) -> None:
        super().__init__(task, user, config)
        self.details = details_of(task)
        self.remaining = list(self.details)
        self.conversation: list[Exchange] = []
        self.full_score = sum(self.config.base(d.importance) for d in self.details)  # type: ignore[misc]

    @staticmethod
    def min_turns(task: Task, config: IntentionConfig) -> int:
        """Return one turn per detail: two details in one message earn less than two messages."""
        return len(details_of(task))

    @classmethod
    def reward_bounds(cls, config: IntentionConfig) -> RewardBounds:
        """Bound a turn by one detail's base reward, however many details a message covers."""
        return RewardBounds(0.0, max(config.high, config.medium, config.low), math.inf)

    @classmethod
    def gold(cls, task: Task, config: IntentionConfig) -> list[InteractCall]:
        """Ask each detail's own inquiry, the most important first."""
        order = sorted(details_of(task), key=lambda d: -d.importance)
        return [InteractCall(Choice.ACTION, detail.inquiry) for detail in order]

    def opening(self) -> str:
        """Return the category and the request."""
        return f"Category: {self.task.payload['category']}\nRequest: {self.task.payload['task']}"

    def brief(self) -> str:
        """Return the request only."""
        return str(self.task.payload["task"])

    async def action(self, content: str) -> Reply:
        """Reply to a question and judge it at the same time, in separate calls that do not see each other's result."""
        answer, indices = await _both(
            self.user.reply(content, tuple(self.conversation)), self.user.covered(content, tuple(self.remaining))
        )
        covered = self._valid(indices)
        reward = self._reward([self.remaining[i] for i in covered])
        self.remaining = [detail for i, detail in enumerate(self.remaining) if i not in covered]
        self.conversation.append(Exchange(content, answer))
        done = not self.remaining
        return Reply(answer, reward, done, success=True if done else None, info={"covered": len(covered)})

    def _valid(self, indices: Sequence[int]) -> set[int]:
        for index in indices:
            if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(self.remaining):
                raise JudgeError(
                    "judge.no_reply",
                    f"The judge named detail {index!r}, and there are {len(self.remaining)} left.",
                )
        return set(indices)

    def _reward(self, covered: Sequence[Detail]) -> float:
        if not covered:
            return 0.0
        base = max(self.config.base(detail.importance) for detail in covered)
        return max(0.0, base - self.config.multi_penalty * (len(covered) - 1))


def details_of(task: Task) -> tuple[Detail, ...]:
    """Return the task's missing details. Raises TaskError with the task, the detail and the field."""
    rows = task.payload.get("details")
    if not isinstance(rows, (list, tuple)) or not rows:
        raise TaskError("task.invalid_field", f"Task {task.key} has no details.")
    return tuple(_detail(task, i, row) for i, row in enumerate(rows))


def _detail(task: Task, number: int, row: Any) -> Detail:
    for name in ("description", "inquiry"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise TaskError("task.invalid_field", f"Task {task.key}, detail {number}: field '{name}' is not a text.")
    if row.get("importance") not in (1, 2, 3):
        raise TaskError(
            "task.invalid_field",
            f"Task {task.key}, detail {number}: field 'importance' is {row.get('importance')!r}, not 1, 2 or 3.",
        )
    options = tuple(str(option) for option in row.get("options", ()))
    return Detail(row["description"], int(row["importance"]), row["inquiry"], options)


async def _both(reply: Any, judgement: Any) -> tuple[str, Sequence[int]]:
    """Run both calls at once. If one fails, the other is cancelled and the first error is raised unwrapped."""
    try:
        async with asyncio.TaskGroup() as group:
            reply_task, judgement_task = group.create_task(reply), group.create_task(judgement)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return reply_task.result(), judgement_task.result()
