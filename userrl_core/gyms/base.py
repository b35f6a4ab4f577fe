"""The base class of all gyms (UserRL section 2, "General Gym Components").

A gym's methods named ``action``, ``search`` and ``answer`` are the choices it allows. A gym object holds the state of one
episode. All its random draws come from `Gym.rng`, which `reset(seed)` seeds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from userrl_core.errors import ConfigError, GymError, TaskError, first_line
from userrl_core.gyms.solution import ReferenceSolution
from userrl_core.interact import CHOICES, InteractCall
from userrl_core.records import ModelCall, Task
from userrl_core.settings import refuse_truth_values


class GymConfig(BaseModel):
    """Reward values, thresholds and penalties of a gym. A gym with more fields subclasses it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    reward_scale: float = 1.0
    """Factor of every turn reward (released code: 1)."""

    step_penalty: float = 0.0
    """Amount subtracted from every turn's reward (released code: 0)."""


@dataclass(slots=True)
class Reply:
    """The return value of a gym's method for one call.

    reward: None means that scoring did not run. success: None derives it from the score at the end of the episode
    (full score).
    """

    observation: str
    reward: float | None = 0.0
    done: bool = False
    success: bool | None = None
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class StepResult:
    """The result of `Gym.step`.

    info holds ``success`` on the last turn, and ``disallowed`` for a choice that the gym does not allow.
    """

    observation: str
    reward: float | None
    terminated: bool
    info: dict[str, Any]


class RewardBounds(NamedTuple):
    """Bounds of the reward of a single turn, before scale and step penalty.

    answer: the smallest positive reward of an answer. It is 0.0 if that reward can be arbitrarily small, and infinity
    if answers earn nothing.
    """

    low: float
    high: float
    answer: float = 0.0

    @classmethod
    def of_answers(cls, *values: float) -> RewardBounds:
        """Return the bounds of a gym whose answers earn one of these values and whose other turns earn 0."""
        return cls(min(0.0, *values), max(0.0, *values), min((v for v in values if v > 0.0), default=math.inf))


C = TypeVar("C", bound=GymConfig)


class Gym(Generic[C]):
    """One episode of one task. Single-use: `reset` once, `step` until done, `aclose`."""

    name: ClassVar[str]
    """Name in the registry."""
    config_type: ClassVar[type[GymConfig]] = GymConfig
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Lowest and highest raw reward of a single turn, before scale and penalty, for a gym without reward fields."""
    full_score: ClassVar[float] = 1.0
    """Value of the metric for a perfect trajectory."""
    metric: ClassVar[str]
    """The paper's name of the metric (UserRL table 2)."""
    success_rule: ClassVar[str] = "the full score when the conversation ends"
    """Definition of success, for pass^k and similar metrics. A partial score is never a success. `Gym.succeeded` follows it."""
    min_turns: Any = 1
    """Fewest turns that a full-skill agent needs for a task without luck: a number, or a staticmethod (task, config) -> int."""
    users: ClassVar[Mapping[str, Any]] = {}
    """The gym's users by kind (``rule``, ``openai``, ``human``), as factories (task, rng, **options) -> user."""
    goal: ClassVar[str] = ""
    """The gym's goal in the agent's system message: one or two sentences in our words."""
    hint: ClassVar[str] = ""
    """One sentence of advice, shown in prompt style ``paper`` only (UserRL figure 16)."""
    choice_help: ClassVar[Mapping[str, str]] = {}
    """The effect and the content format of each allowed choice, as shown in the system message."""

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of allowed choices, from prompts of other code. They are accepted but never offered."""

    elsewhere: ClassVar[bool] = False
    """Whether a server named in the configuration runs the episodes."""

    irreproducible: ClassVar[str] = ""
    """The reason why the same calls may bring different observations; "" if they do not."""

    slow: ClassVar[bool] = False
    """Whether a turn takes a good part of a second. A suite over all gyms omits slow gyms."""

    blocking: ClassVar[bool] = False
    """Whether `reset` waits for another process. It is then called in a thread, so that other episodes continue."""

    _methods: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The choices that a gym allows are the methods it defines.
        cls._methods = tuple(str(c) for c in CHOICES if callable(getattr(cls, str(c), None)))

    def __init__(self, task: Task, user: Any = None, config: C | None = None) -> None:
        """Prepare the episode. user: a user object of this gym, or None. config: None takes the papers' values."""
        self.task = task
        self.user = user
        self.config: C = config if config is not None else self.config_type()  # type: ignore[assignment]
        # A generator of its own: the global one would depend on the episodes that are played beside this one.
        self.rng = random.Random(0)
        self.turns = 0
        self.rewards: list[float | None] = []
        self.ledger: list[ModelCall] = []
        """Model calls of the current step. The episode moves them into the turn."""
        self.succeeded = False
        self._state = "new"
        if user is not None and hasattr(user, "ledger"):
            # One list for both, so that the user's calls are counted in the step that asked it.
            user.ledger = self.ledger

    @classmethod
    def choices(cls) -> tuple[str, ...]:
        """Return the choices that this gym allows, in the tool's order."""
        return cls._methods

    @classmethod
    def unavailable(cls) -> str:
        """Return why this gym cannot run on this machine, as a sentence with the remedy; "" if it can."""
        return ""

    def help_for(self, choice: str) -> str:
        """Return the description of a choice for the system message."""
        return self.choice_help.get(choice, "allowed")

    def ready(self) -> Mapping[str, Sequence[str]]:
        """Return contents that a person can choose with a button, by choice; "" for a choice that needs no text.

        A choice without an entry needs a text.
        """
        return {}

    def native_tools(self) -> list[dict[str, Any]]:
        """Return the OpenAI function schemas of the gym's native protocol.

        In that protocol plain text goes to the user, so there is one function for each choice other than ``action``.
        """
        return [native_tool(choice, self.help_for(choice)) for choice in self._methods if choice != "action"]

    def native_call(self, name: str, arguments: Mapping[str, Any]) -> InteractCall | None:
        """Translate a native tool call into an interact call; return None for an unreadable call."""
        content = arguments.get("content")
        return InteractCall(name, content) if name in self._methods and isinstance(content, str) else None

    @classmethod
    def reward_bounds(cls, config: Any) -> RewardBounds:
        """Return the bounds of a turn's reward under a config. A gym with reward fields computes them from those fields."""
        return RewardBounds(*cls.reward_range, 0.0 if "answer" in cls._methods else math.inf)

    def reset(self, seed: int | None = None) -> str:
        """Start the episode and return the opening observation, the user's first message.

        Raises GymError when called twice, and TaskError for a task without a field that the gym reads.
        """
        if self._state != "new":
            raise GymError("gym.misused", f"This {self.name} gym was already used. Make a new one for another episode.")
        self._state = "running"
        if seed is not None:
            self.rng.seed(seed)
        try:
            return self.opening()
        except KeyError as error:
            missing = error.args[0] if error.args else None
            # A key that the task has was missing elsewhere: a bug of the gym, which keeps its own error.
            if not isinstance(missing, str) or missing in self.task.payload:
                raise
            raise TaskError(
                "task.invalid_field",
                f"Task {self.task.key} cannot be opened: there is no {missing!r}. Its payload has "
                f"{', '.join(self.task.payload) or 'nothing'}.",
            ) from error

    async def step(self, call: InteractCall) -> StepResult:
        """Execute one call. Raises GymError before `reset` and after the end. UserError and JudgeError pass through."""
        if self._state != "running":
            if self._state == "new":
                raise GymError("gym.misused", f"This {self.name} gym has not been reset. Call reset() before step().")
            raise GymError(
                "gym.misused", f"This {self.name} gym has ended its episode. Make a new one for another episode."
            )
        # A choice that is not allowed uses up a turn too.
        self.turns += 1
        name = self.aliases.get(call.choice, call.choice)
        if name not in self._methods:
            allowed = " or ".join(self._methods)
            return self._result(Reply(f"'{call.choice}' is not possible here; choose {allowed}."), {"disallowed": True})
        # Looked up each time: kept on the gym, the bound method would hold it until the garbage collector came by.
        reply: Reply = await getattr(self, name)(call.content)
        self._check(reply)
        return self._result(reply, reply.info)

    def _result(self, reply: Reply, info: dict[str, Any]) -> StepResult:
        reward = finite(reply.reward, self.name, "reward")
        # A choice that the gym does not allow earns exactly 0.0: scale and penalty apply to executed steps only.
        if reward is not None and "disallowed" not in info:
            reward = finite(reward * self.config.reward_scale - self.config.step_penalty, self.name, "reward")
        self.rewards.append(reward)
        persona = getattr(self.user, "persona", None)
        if persona is not None and (noted := persona.report()):
            info = {**info, "persona": noted}
        if reply.done:
            self._state = "done"
            score = finite(self.score(), self.name, "score")
            # Sums of rewards such as .1 + .2 + .7 may miss the full score by rounding.
            has_full_score = score is not None and score >= self.full_score - 1e-9
            self.succeeded = has_full_score if reply.success is None else bool(reply.success)
            info = {**info, "success": self.succeeded}
        return StepResult(reply.observation, reward, bool(reply.done), info)

    def _check(self, reply: Reply) -> None:
        if not isinstance(reply, Reply):
            raise GymError("gym.bad_package", f"A method of gym '{self.name}' returned {reply!r:.80}. Return a Reply.")
        fits = {
            "observation": isinstance(reply.observation, str),
            "done": reply.done in (True, False),
            "success": reply.success in (True, False, None),
            "info": isinstance(reply.info, dict),
        }
        for name, fitting in fits.items():
            if not fitting:
                raise GymError(
                    "gym.bad_package",
                    f"Gym '{self.name}' replied with {name} {getattr(reply, name)!r:.80}. Correct its method.",
                )

    def last_words(self, text: str) -> str:
        """Extract the user's words from the last observation that the agent saw."""
        return text

    @property
    def done(self) -> bool:
        """Return whether the gym has ended the episode."""
        return self._state == "done"

    def opening(self) -> str:
        """Return the user's first message. `reset` calls this once, after seeding."""
        raise NotImplementedError

    def brief(self) -> str:
        """Return a short opening for models of laptop size; by default the full opening."""
        return self.opening()

    def score(self) -> float | None:
        """Return the metric so far: by default the sum of turn rewards. None once a reward is null."""
        total = 0.0
        for reward in self.rewards:
            if reward is None:
                return None
            total += reward
        return total

    @classmethod
    def reference(cls, task: Task, config: C) -> ReferenceSolution | None:
        """Return the knowledge that a judge of turns needs; None for a gym whose turns are not judged."""
        return None

    async def aclose(self) -> None:
        """Release resources and end the episode. Safe to call twice."""
        self._state = "done"


def finite(value: Any, gym: str, what: str) -> float | None:
    """Return a gym's reward or score as a float; None stays None. Raises GymError for what is not a finite number."""
    if value is None:
        return None
    if not isinstance(value, Real) or not math.isfinite(value):
        raise GymError("gym.bad_package", f"Gym '{gym}' gave the {what} {value!r:.80}. Give a finite number or None.")
    return float(value)


def native_tool(name: str, description: str) -> dict[str, Any]:
    """Return the function schema of a tool that takes one text."""
    properties = {"content": {"type": "string", "description": description}}
    parameters = {"type": "object", "properties": properties, "required": ["content"]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def parse_config(gym_type: type[Gym[Any]], options: Mapping[str, Any]) -> GymConfig:
    """Build the gym's config from keyword options. Raises ConfigError with the wrong key and the known keys."""
    fields = gym_type.config_type.model_fields
    for key in options:
        if key not in fields:
            raise ConfigError(
                "gym.bad_option", f"Gym '{gym_type.name}' has no option '{key}'. It has {', '.join(sorted(fields))}."
            )
    try:
        config = gym_type.config_type(**options)
        refuse_truth_values(options, config)
    except ValueError as error:
        raise ConfigError(
            "gym.bad_option", f"Gym '{gym_type.name}' cannot use these options: {_fault_of(error)}"
        ) from error
    return config


def _fault_of(error: ValueError) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(lines[1:3]) if len(lines) > 2 else first_line(error)
