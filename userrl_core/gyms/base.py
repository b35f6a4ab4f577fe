"""The base class of all gyms (UserRL section 2, "General Gym Components"): dispatch, turn count, rewards, random generator.

A gym's methods named ``action``, ``search`` and ``answer`` are the choices it allows. A gym object holds the state of one
episode; all of its random draws come from `Gym.rng`, which `reset(seed)` seeds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from userrl_core.errors import ConfigError, GymError
from userrl_core.interact import CHOICES, InteractCall
from userrl_core.records import ModelCall, Task, Turn


class GymConfig(BaseModel):
    """Reward values, thresholds and penalties of a gym; a gym with fields of its own subclasses it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    reward_scale: float = 1.0
    """Every turn reward is multiplied by this (released code: 1)."""

    step_penalty: float = 0.0
    """Subtracted from every turn's reward (released code: 0)."""


@dataclass(slots=True)
class Reply:
    """What a gym's method returns for one call.

    reward: None means scoring did not run. success: None derives it from the score when the episode is done (full score).
    """

    observation: str
    reward: float | None = 0.0
    done: bool = False
    success: bool | None = None
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StepResult:
    """What `Gym.step` returns. info holds ``success`` on the last turn, ``disallowed`` for a choice the gym does not allow."""

    observation: str
    reward: float | None
    terminated: bool
    info: dict[str, Any]


class RewardBounds(NamedTuple):
    """Bounds of the reward of a single turn, before scale and step penalty.

    answer: the smallest positive reward of an answer; 0.0 where it can be arbitrarily small, infinity where answers earn
    nothing.
    """

    low: float
    high: float
    answer: float = 0.0

    @classmethod
    def of_answers(cls, *values: float) -> RewardBounds:
        """Bounds of a gym in which an answer earns one of these values and every other turn 0."""
        return cls(min(0.0, *values), max(0.0, *values), min((v for v in values if v > 0.0), default=math.inf))


class Grounds(Protocol):
    """What a judge of turns knows of a task (TARL appendix C)."""

    @property
    def policy(self) -> str:
        """The rules that the agent was given."""
        ...

    @property
    def instruction(self) -> str:
        """What the user was told, which the agent does not see."""
        ...

    @property
    def gold(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """The calls that solve the task, name and arguments."""
        ...

    def departures(self, turns: Sequence[Turn]) -> list[int]:
        """Numbers of the turns that depart from the gold calls, ascending."""
        ...

    def departs(self, turns: Sequence[Turn], answer: str) -> bool:
        """Whether an answer after these turns would depart from the gold calls."""
        ...

    def origin(self, turns: Sequence[Turn], departure: int) -> int:
        """Return the number of the turn that led to this departure: an earlier one that refused or offered it, or itself."""
        ...

    def by_products(self, turns: Sequence[Turn], origin: int) -> list[int]:
        """Return the numbers of later turns that only repeat the deviation, or report it as settled."""
        ...

    def slips(self, turns: Sequence[Turn]) -> list[int]:
        """Return the numbers of turns that broke a rule of the policy without changing what is written."""
        ...


C = TypeVar("C", bound=GymConfig)


class Gym(Generic[C]):
    """One episode of one task. Single-use: `reset` once, `step` until done, `aclose`."""

    name: ClassVar[str]
    """The registry's name."""
    config_type: ClassVar[type[GymConfig]] = GymConfig
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Lowest and highest raw reward of a single turn, before scale and penalty, of a gym without reward fields."""
    full_score: ClassVar[float] = 1.0
    """The metric's value of a perfect trajectory."""
    metric: ClassVar[str]
    """The paper's name of the metric (UserRL table 2)."""
    success_rule: ClassVar[str] = "the full score when the conversation ends"
    """What counts as a success, for pass^k and the like: never a partial score. `Gym.succeeded` follows it."""
    min_turns: Any = 1
    """Fewest turns in which a full-skill agent solves a task without luck: a number, or a staticmethod (task, config) -> int."""
    users: ClassVar[Mapping[str, Any]] = {}
    """The users that the gym has, by kind (``rule``, ``openai``, ``human``): factories (task, rng, **options) -> user."""
    goal: ClassVar[str] = ""
    """The gym's goal in the agent's system message: one or two sentences, our words."""
    hint: ClassVar[str] = ""
    """How to go about it, in one sentence; shown in prompt style ``paper`` alone (UserRL figure 16)."""
    choice_help: ClassVar[Mapping[str, str]] = {}
    """Per allowed choice: what it does and what its content looks like, as the system message shows it."""

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of allowed choices, which prompts of other code use; they are taken and never offered."""

    elsewhere: ClassVar[bool] = False
    """Whether its episodes are played by a server that its configuration has to name."""

    irreproducible: ClassVar[str] = ""
    """Why the same calls need not bring the same observations again; "" where they do."""

    slow: ClassVar[bool] = False
    """Whether a turn takes a good part of a second: a suite over every gym leaves it out."""

    blocking: ClassVar[bool] = False
    """Whether `reset` waits for another process: it is then called in a thread, so that other episodes go on."""

    _methods: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._methods = tuple(str(c) for c in CHOICES if callable(getattr(cls, str(c), None)))

    def __init__(self, task: Task, user: Any = None, config: C | None = None) -> None:
        """task: a task of this gym. user: a user object of this gym, or None. config: None takes the papers' values."""
        self.task = task
        self.user = user
        self.config: C = config if config is not None else self.config_type()  # type: ignore[assignment]
        self.rng = random.Random(0)
        self.turns = 0
        self.rewards: list[float | None] = []
        self.ledger: list[ModelCall] = []
        """Model calls of the current step; the episode moves them into the turn."""
        self.succeeded = False
        self._state = "new"
        if user is not None and hasattr(user, "ledger"):
            user.ledger = self.ledger

    @classmethod
    def choices(cls) -> tuple[str, ...]:
        """The choices this gym allows, in the tool's order."""
        return cls._methods

    @classmethod
    def unavailable(cls) -> str:
        """Why this gym cannot be played on this machine, as a sentence that says what to do; "" where it can."""
        return ""

    def help_for(self, choice: str) -> str:
        """What a choice does, as the system message shows it."""
        return self.choice_help.get(choice, "allowed")

    def native_tools(self) -> list[dict[str, Any]]:
        """OpenAI function schemas of the gym's own protocol, in which plain words go to the user: one for each other choice."""
        return [native_tool(choice, self.help_for(choice)) for choice in self._methods if choice != "action"]

    def native_call(self, name: str, arguments: Mapping[str, Any]) -> InteractCall | None:
        """The interact call that a call of a native tool means; None for one that cannot be read."""
        content = arguments.get("content")
        return InteractCall(name, content) if name in self._methods and isinstance(content, str) else None

    @classmethod
    def reward_bounds(cls, config: Any) -> RewardBounds:
        """Bounds of a turn's reward under a config of this gym; a gym with reward fields computes them from those."""
        return RewardBounds(*cls.reward_range, 0.0 if "answer" in cls._methods else math.inf)

    def reset(self, seed: int | None = None) -> str:
        """Start the episode; returns the opening observation (the user's first message). Raises GymError when called twice."""
        if self._state != "new":
            raise GymError(f"This {self.name} gym was already used; make a new one for another episode.")
        self._state = "running"
        if seed is not None:
            self.rng.seed(seed)
        return self.opening()

    async def step(self, call: InteractCall) -> StepResult:
        """Execute one call. Raises GymError before `reset` and after the end; UserError and JudgeError pass through."""
        if self._state != "running":
            if self._state == "new":
                raise GymError(f"This {self.name} gym has not been reset; call reset() before step().")
            raise GymError(f"This {self.name} gym is finished; make a new one for another episode.")
        self.turns += 1
        name = self.aliases.get(call.choice, call.choice)
        if name not in self._methods:
            allowed = " or ".join(self._methods)
            return self._result(Reply(f"'{call.choice}' is not possible here; choose {allowed}."), {"disallowed": True})
        # Looked up each time: kept on the gym, the bound method would hold it until the garbage collector came by.
        reply: Reply = await getattr(self, name)(call.content)
        return self._result(reply, reply.info)

    def _result(self, reply: Reply, info: dict[str, Any]) -> StepResult:
        reward = reply.reward
        # A choice that the gym does not allow earns exactly 0.0: scale and penalty apply to executed steps only.
        if reward is not None and "disallowed" not in info:
            reward = reward * self.config.reward_scale - self.config.step_penalty
        self.rewards.append(reward)
        if reply.done:
            self._state = "done"
            score = self.score()
            has_full_score = score is not None and score >= self.full_score - 1e-9
            self.succeeded = has_full_score if reply.success is None else reply.success
            info = {**info, "success": self.succeeded}
        return StepResult(reply.observation, reward, reply.done, info)

    def last_words(self, text: str) -> str:
        """What the user said in its last message, from what the agent saw of it."""
        return text

    @property
    def done(self) -> bool:
        """Whether the gym has ended the episode."""
        return self._state == "done"

    def opening(self) -> str:
        """The user's first message. Called once, by `reset`, after seeding."""
        raise NotImplementedError

    def brief(self) -> str:
        """A short opening for models of laptop size; the full opening unless the gym defines one."""
        return self.opening()

    def score(self) -> float | None:
        """The gym's metric so far; the sum of turn rewards unless the gym defines another. None once a reward is null."""
        total = 0.0
        for reward in self.rewards:
            if reward is None:
                return None
            total += reward
        return total

    @classmethod
    def grounds(cls, task: Task, config: C) -> Grounds | None:
        """What a judge of turns knows of the task; None for a gym whose turns are not judged."""
        return None

    async def aclose(self) -> None:
        """Release resources and end the episode. Safe to call twice."""
        self._state = "done"


def native_tool(name: str, description: str) -> dict[str, Any]:
    """The function schema of a tool that takes one text."""
    properties = {"content": {"type": "string", "description": description}}
    parameters = {"type": "object", "properties": properties, "required": ["content"]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def parse_config(gym_type: type[Gym[Any]], options: Mapping[str, Any]) -> GymConfig:
    """The gym's config from keyword options. Raises ConfigError naming the wrong key and the known ones."""
    known = gym_type.config_type.model_fields
    for key in options:
        if key not in known:
            raise ConfigError(f"Gym '{gym_type.name}' has no option '{key}'; it has {', '.join(sorted(known))}.")
    try:
        return gym_type.config_type(**options)
    except ValueError as error:
        raise ConfigError(f"Gym '{gym_type.name}' cannot use these options: {_first_line(error)}") from error


def _first_line(error: ValueError) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(lines[1:3]) if len(lines) > 2 else lines[0]
