"""What every gym shares: dispatch, counting, one use only, its own generator (UserRL section 2, "General Gym Components").

A gym is a class whose methods named ``action``, ``search`` and ``answer`` are the choices it allows. It holds the state of
one attempt at one task; everything random in it draws from `Gym.rng`, which `reset(seed)` seeds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from userrl_core.errors import ConfigError, GymError
from userrl_core.interact import CHOICES, InteractCall
from userrl_core.records import ModelCall, Task


class GymConfig(BaseModel):
    """Reward values, thresholds and penalties of a gym; each gym subclasses it with its own fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    reward_scale: float = 1.0
    """Every turn reward is multiplied by this (released code: 1)."""

    step_penalty: float = 0.0
    """Subtracted from every turn's reward (released code: 0)."""


@dataclass(slots=True)
class Reply:
    """What a gym's own rule answers to one call.

    reward None: scoring did not run. success: None means "done with full score"; a gym that knows better says so.
    """

    observation: str
    reward: float | None = 0.0
    done: bool = False
    success: bool | None = None
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StepResult:
    """What `Gym.step` returns. info holds ``success`` on the last turn, ``disallowed`` for a choice the gym lacks."""

    observation: str
    reward: float | None
    terminated: bool
    info: dict[str, Any]


class Pay(NamedTuple):
    """What single turns can earn, before scale and step penalty: least and most, and the least above 0 of an answer.

    answer: 0.0 where it can be as little as one likes, infinity where answers earn nothing.
    """

    least: float
    most: float
    answer: float = 0.0

    @classmethod
    def of_answers(cls, *values: float) -> Pay:
        """Pay of a gym in which an answer earns one of these values and all else 0."""
        return cls(min(0.0, *values), max(0.0, *values), min((v for v in values if v > 0.0), default=math.inf))


C = TypeVar("C", bound=GymConfig)
Method = Callable[[str], Awaitable[Reply]]


class Gym(Generic[C]):
    """One attempt at one task. Single-use: `reset` once, `step` until done, `aclose`."""

    name: ClassVar[str]
    """The registry's name."""
    config_type: ClassVar[type[GymConfig]] = GymConfig
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Least and greatest raw reward of a single turn, before scale and penalty, where no field of the config changes it."""
    full_score: ClassVar[float] = 1.0
    """The metric's value for a perfect attempt."""
    metric: ClassVar[str]
    """The paper's name of the metric (UserRL table 2)."""
    min_turns: Any = 1
    """Fewest turns in which a full-skill agent solves a task without luck: a number, or a staticmethod (task, config) -> int."""
    users: ClassVar[Mapping[str, Any]] = {}
    """Who can answer inside the gym, by kind (``rule``, ``openai``, ``human``): factories (task, rng, **options) -> user."""
    goal: ClassVar[str] = ""
    """What the agent is told about this gym in the system message: one or two sentences, our words."""
    choice_help: ClassVar[Mapping[str, str]] = {}
    """For each allowed choice, what it does here and what its content looks like."""

    _methods: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._methods = tuple(str(c) for c in CHOICES if callable(getattr(cls, str(c), None)))

    def __init__(self, task: Task, user: Any = None, config: C | None = None) -> None:
        """task: one of this gym's. user: an object of the kind the gym needs, or None. config: defaults from the paper."""
        self.task = task
        self.user = user
        self.config: C = config if config is not None else self.config_type()  # type: ignore[assignment]
        self.rng = random.Random(0)
        self.turns = 0
        self.rewards: list[float | None] = []
        self.ledger: list[ModelCall] = []
        """Model calls made inside the current step; the episode drains it into the turn."""
        self.succeeded = False
        self._state = "new"
        self._dispatch: dict[str, Method] = {name: getattr(self, name) for name in self._methods}
        if user is not None and hasattr(user, "ledger"):
            user.ledger = self.ledger

    @classmethod
    def choices(cls) -> tuple[str, ...]:
        """The choices this gym allows, in the tool's order."""
        return cls._methods

    @classmethod
    def pay(cls, config: Any) -> Pay:
        """What a turn can earn under a config of this gym; a gym with reward fields computes it from them."""
        return Pay(*cls.reward_range, 0.0 if "answer" in cls._methods else math.inf)

    def reset(self, seed: int | None = None) -> str:
        """Start the attempt; returns the opening observation (the user's first message). Raises GymError when used twice."""
        if self._state != "new":
            raise GymError(f"This {self.name} gym was already used; make a new one for another attempt.")
        self._state = "running"
        if seed is not None:
            self.rng.seed(seed)
        return self.opening()

    async def step(self, call: InteractCall) -> StepResult:
        """Carry out one call. Raises GymError before `reset` and after the end; lets UserError and JudgeError through."""
        if self._state != "running":
            wrong = "has not been reset" if self._state == "new" else "is finished"
            raise GymError(f"This {self.name} gym {wrong}; it takes no step.")
        self.turns += 1
        method = self._dispatch.get(call.choice)
        if method is None:
            allowed = " or ".join(self._methods)
            return self._result(Reply(f"'{call.choice}' is not possible here; choose {allowed}."), {"disallowed": True})
        reply = await method(call.content)
        return self._result(reply, reply.info)

    def _result(self, reply: Reply, info: dict[str, Any]) -> StepResult:
        reward = reply.reward
        # A choice the gym lacks and a reply without a call earn 0.0 exactly: the penalty is for steps that were taken.
        if reward is not None and "disallowed" not in info:
            reward = reward * self.config.reward_scale - self.config.step_penalty
        self.rewards.append(reward)
        if reply.done:
            self._state = "done"
            score = self.score()
            full = score is not None and score >= self.full_score - 1e-9
            self.succeeded = full if reply.success is None else reply.success
            info = {**info, "success": self.succeeded}
        return StepResult(reply.observation, reward, reply.done, info)

    @property
    def done(self) -> bool:
        """Whether the gym has ended the attempt itself."""
        return self._state == "done"

    def opening(self) -> str:
        """The user's first message. Called once, by `reset`, after seeding."""
        raise NotImplementedError

    def brief(self) -> str:
        """The opening in as few words as possible, for models of laptop size; the full opening unless a gym has one."""
        return self.opening()

    def score(self) -> float | None:
        """The gym's metric so far; the sum of turn rewards unless a gym has its own. None once a reward is null."""
        total = 0.0
        for reward in self.rewards:
            if reward is None:
                return None
            total += reward
        return total

    async def aclose(self) -> None:
        """Release what the attempt holds. Safe to call twice."""
        self._state = "done"


def parse_config(kind: type[Gym[Any]], options: Mapping[str, Any]) -> GymConfig:
    """The gym's config from keyword options. Raises ConfigError naming the wrong key and the known ones."""
    known = kind.config_type.model_fields
    for key in options:
        if key not in known:
            raise ConfigError(f"Gym '{kind.name}' has no option '{key}'; it has {', '.join(sorted(known))}.")
    try:
        return kind.config_type(**options)
    except ValueError as error:
        raise ConfigError(f"Gym '{kind.name}' cannot use these options: {_first_line(error)}") from error


def _first_line(error: ValueError) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(lines[1:3]) if len(lines) > 2 else lines[0]
