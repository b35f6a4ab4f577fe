"""Horizon schedules: the maximum turns of a trajectory at each training step (AgentGym-RL section 3.3).

Every schedule is a pure function of the step, counted from 1, and of the recorded history if gates decide. Nothing is
remembered between calls, so a resumed run has the same horizons as an uninterrupted one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from userrl_core.errors import ConfigError
from userrl_core.settings import Settings

MAX_TURNS = 10_000
Turns = Annotated[int, Field(gt=0, le=MAX_TURNS)]
"""A horizon."""

Entry = Mapping[str, Any]
"""A gate's input for one finished step: ``step``, a success rate (the share of the step's admitted trajectories that
succeeded), `SIGNALS` and `SPENT`. Trainers append one entry per step and keep the list in the checkpoint.
"""

History = Sequence[Entry]

SUCCESS = ("success", "train/all/success")
"""Possible keys of an entry's success rate. An entry without one (no trajectory could be scored) has the previous
step's rate. Without any rate it is 0, which opens no success gate.
"""


SIGNALS = ("success", "signal", "entropy", "length")
"""Signals of a step that gates read. A missing signal has the previous step's value. Without any value its gate stays closed."""

SPENT = ("tokens", "cpu_seconds", "gpu_seconds")
"""Resources that a step used. A missing entry means none."""


class Gate(Settings):
    """Conditions for the next horizon: success is high enough or has stopped rising, little is left to learn, or a
    budget is spent. Any one condition suffices.
    """

    success: float | None = Field(default=None, gt=0.0, le=1.0)
    """Opens when the mean success rate of the window is at least this."""

    plateau: float | None = Field(default=None, ge=0.0)
    """Opens when the window's mean exceeds the previous window's by less than this."""

    signal: float | None = Field(default=None, ge=0.0, le=1.0)
    """Opens when the window's mean share of groups with differing scores is at most this: little is left to learn at
    this horizon.
    """

    entropy: NonNegativeFloat | None = None
    """Opens when the window's mean entropy, in nats, is at most this: before the policy loses diversity that a longer
    horizon needs.
    """

    length: float | None = Field(default=None, gt=0.0, le=1.0)
    """Opens when conversations use at least this mean share of the horizon's turns: the horizon is their limit."""

    window: PositiveInt = 10
    """Number of steps in the mean."""

    at_least: NonNegativeInt = 0
    """Never opens before this many steps."""

    at_most: PositiveInt | None = None
    """Opens after this many steps in any case. Without it, an adaptive schedule divides the run's steps evenly among
    its horizons, so that no horizon waits forever for a collapsed policy.
    """

    tokens: PositiveInt | None = None
    """Opens in any case once the span has used this many tokens, with openings and observations."""

    cpu_seconds: PositiveFloat | None = None
    """Opens in any case once the span's steps have used this much processor time, without validations (local backend)."""

    gpu_seconds: PositiveFloat | None = None
    """Opens in any case after this many seconds on the GPU (local backend)."""

    hold: PositiveInt = 1
    """Consecutive steps for which the condition must hold, so that one lucky step does not open the gate."""

    @model_validator(mode="after")
    def _can_open(self) -> Gate:
        watched = (self.success, self.plateau, self.signal, self.entropy, self.length)
        if all(value is None for value in (*watched, self.at_most, self.tokens, self.cpu_seconds, self.gpu_seconds)):
            raise ConfigError("recipe.missing_key", "the gate can never open; give success, plateau or at_most")
        return self

    @property
    def timed(self) -> bool:
        """Return whether the gate needs the duration of steps."""
        return self.cpu_seconds is not None or self.gpu_seconds is not None

    def opens_after(self, steps: Sequence[Mapping[str, float]]) -> int | None:
        """Return the number of steps after which the gate opens, None while it is closed.

        steps: recorded entries of the span's steps so far, in order (`SIGNALS`, `SPENT`).
        """
        steps_held = 0
        spent = dict.fromkeys(SPENT, 0.0)
        budgets = [(name, limit) for name in SPENT if (limit := getattr(self, name)) is not None]
        for steps_done in range(1, len(steps) + 1):
            for name in SPENT:
                spent[name] += steps[steps_done - 1].get(name, 0.0)
            if self.at_most is not None and steps_done >= self.at_most:
                return steps_done
            if any(spent[name] >= limit for name, limit in budgets):
                return steps_done
            steps_held = steps_held + 1 if self._holds(steps[:steps_done]) else 0
            if steps_held >= self.hold and steps_done >= self.at_least:
                return steps_done
        return None

    def _holds(self, steps: Sequence[Mapping[str, float]]) -> bool:
        success, before = self._mean("success", steps), self._mean("success", steps[: -self.window])
        signal, entropy, length = (self._mean(name, steps) for name in SIGNALS[1:])
        return (
            (self.success is not None and success is not None and success >= self.success)
            or (
                self.plateau is not None
                and success is not None
                and before is not None
                and success - before < self.plateau
            )
            or (self.signal is not None and signal is not None and signal <= self.signal)
            or (self.entropy is not None and entropy is not None and entropy <= self.entropy)
            or (self.length is not None and length is not None and length >= self.length)
        )

    def _mean(self, name: str, steps: Sequence[Mapping[str, float]]) -> float | None:
        values = [step[name] for step in steps[-self.window :] if name in step]
        return sum(values) / self.window if len(values) == self.window else None


@dataclass(frozen=True, slots=True)
class Level:
    """One span of a schedule: its horizon, its maximum length in steps (None: to the end), its gate."""

    horizon: int
    steps: int | None = None
    gate: Gate | None = None


class Schedule(Settings):
    """Base of all kinds: levels one after the other."""

    def levels(self) -> tuple[Level, ...]:
        """Return the spans in order."""
        raise NotImplementedError

    @property
    def adaptive(self) -> bool:
        """Return whether the horizon depends on the recorded history."""
        return any(level.gate is not None for level in self.levels())

    def horizon(self, step: int, history: History = ()) -> int:
        """Return the maximum agent turns of a trajectory in this step, counted from 1."""
        return self.levels()[self.level(step, history)].horizon

    def level(self, step: int, history: History = ()) -> int:
        """Return the index of the step's span, or of the last span after the end of the schedule."""
        return place(self.levels(), step, history)[0]


def place(levels: Sequence[Level], step: int, history: History = ()) -> tuple[int, int, int | None]:
    """Return index, first step and last step (None: open) of a step's span.

    Raises ConfigError for steps below 1, and if the history lacks a step that a gate needs.
    """
    if step < 1:
        raise ConfigError("recipe.no_such_step", f"Training steps count from 1. There is no step {step}.")
    gated = any(level.gate is not None for level in levels)
    recorded = _recorded(history) if gated else {}
    first = 1
    for index, level in enumerate(levels):
        last = None if level.steps is None else first + level.steps - 1
        if level.gate is not None and index < len(levels) - 1:
            last = _gated_end(level.gate, first, last, step, recorded)
        if last is None or step <= last or index == len(levels) - 1:
            return index, first, last
        first = last + 1
    raise ConfigError("recipe.no_such_step", "The schedule has no span. Give at least one horizon.")


def _gated_end(
    gate: Gate, first: int, last: int | None, step: int, recorded: Mapping[int, Mapping[str, float]]
) -> int | None:
    """Return the span's last step, given the history before ``step``."""
    recorded_steps = []
    for s in range(first, step if last is None else min(step, last + 1)):
        if s not in recorded:
            raise ConfigError(
                "recipe.no_such_step",
                f"The history has no step {s}, so the gate cannot decide the horizon of step {step}.",
            )
        recorded_steps.append(recorded[s])
    opened = gate.opens_after(recorded_steps)
    return last if opened is None else first + opened - 1


def _recorded(history: History) -> dict[int, dict[str, float]]:
    """Return the gates' inputs by step. If a step has two entries, the later one counts."""
    steps: dict[int, dict[str, float]] = {}
    latest: dict[str, float] = {"success": 0.0}
    for step, entry in sorted({int(entry["step"]): entry for entry in history}.items()):
        rate = next((float(entry[name]) for name in SUCCESS if entry.get(name) is not None), latest["success"])
        measured = {name: float(entry[name]) for name in (*SIGNALS, *SPENT) if entry.get(name) is not None}
        latest = {name: value for name, value in (latest | measured).items() if name in SIGNALS} | {"success": rate}
        steps[step] = latest | {name: value for name, value in measured.items() if name in SPENT}
    return steps


class Fixed(Schedule):
    """One constant horizon."""

    kind: Literal["fixed"] = "fixed"
    """Kind of the schedule."""

    turns: Turns
    """The horizon, in agent turns."""

    def levels(self) -> tuple[Level, ...]:
        """Return one open span."""
        return (Level(self.turns),)


class Span(Settings):
    """One span of explicit stages."""

    steps: PositiveInt
    """Training steps (with a gate: the maximum)."""

    horizon: Turns
    """Maximum agent turns."""

    gate: Gate | None = None
    """Gate that ends the span early."""


class Stages(Schedule):
    """Explicit spans, made from the recipe's stages if it names no other schedule."""

    kind: Literal["stages"] = "stages"
    """Kind of the schedule."""

    spans: tuple[Span, ...]
    """The spans in order."""

    @model_validator(mode="after")
    def _never_shrinks(self) -> Stages:
        _check_rising([span.horizon for span in self.spans])
        return self

    def levels(self) -> tuple[Level, ...]:
        """Return the spans."""
        return tuple(Level(span.horizon, span.steps, span.gate) for span in self.spans)


class ScalingInter(Schedule):
    """ScalingInter-RL: the horizon grows every delta steps up to a cap (AgentGym-RL section 3.3)."""

    kind: Literal["scaling_inter"] = "scaling_inter"
    """Kind of the schedule."""

    start: Turns
    """Horizon of the first span, the paper's h1."""

    increment: PositiveInt | tuple[PositiveInt, ...]
    """Increase after every span, the paper's delta_h: a number, or one per increase."""

    every: PositiveInt
    """Training steps of a span, the paper's delta."""

    cap: Turns
    """Largest horizon."""

    @model_validator(mode="after")
    def _has_room(self) -> ScalingInter:
        if self.cap < self.start:
            raise ConfigError(
                "recipe.invalid_value", f"cap {self.cap} is below start {self.start}; horizons never shrink"
            )
        if isinstance(self.increment, tuple) and not self.increment:
            raise ConfigError("recipe.invalid_value", "increment is empty; give what is added after every span")
        return self

    def levels(self) -> tuple[Level, ...]:
        """Return spans of equal length, the last one open."""
        horizons = [self.start]
        while horizons[-1] < self.cap:
            rise = self.increment
            if isinstance(rise, tuple):
                if len(horizons) > len(rise):
                    break
                rise = rise[len(horizons) - 1]
            horizons.append(min(horizons[-1] + rise, self.cap))
        return (*(Level(h, self.every) for h in horizons[:-1]), Level(horizons[-1]))


class Adaptive(Schedule):
    """Horizons that advance when a gate opens. They never shrink, even if success falls later."""

    kind: Literal["adaptive"] = "adaptive"
    """Kind of the schedule."""

    horizons: tuple[Turns, ...] = Field(min_length=1)
    """The horizons, in rising order."""

    gate: Gate
    """Gate to the next horizon. It judges only the steps at the present horizon."""

    @model_validator(mode="after")
    def _never_shrinks(self) -> Adaptive:
        _check_rising(self.horizons)
        return self

    def within(self, steps: int) -> Adaptive:
        """Return the schedule for a run of so many steps: a gate without at_most gets its horizon's even share."""
        if self.gate.at_most is not None:
            return self
        share = max(steps // len(self.horizons), 1)
        return self.model_copy(update={"gate": self.gate.model_copy(update={"at_most": share})})

    def levels(self) -> tuple[Level, ...]:
        """Return one gated span per horizon, the last one open."""
        return (*(Level(h, None, self.gate) for h in self.horizons[:-1]), Level(self.horizons[-1]))


ENTRY_POINT = "userrl.schedules"
"""Kinds of schedules from installed packages. The entry point's name is the ``kind``, its object a `Schedule` class."""


def _or_installed(value: Any, ours: ValidatorFunctionWrapHandler) -> Any:
    """Validate a schedule of ours or of a package that brings its kind. An unknown kind gets our error."""
    if isinstance(value, Schedule):
        return value
    kind = value.get("kind") if isinstance(value, Mapping) else None
    point = next((point for point in entry_points(group=ENTRY_POINT) if point.name == kind), None)
    if point is None or kind in OURS:
        return ours(value)
    schedule: type[Schedule] = point.load()
    return schedule.model_validate(value)


OURS = tuple(kind.model_fields["kind"].default for kind in (Fixed, Stages, ScalingInter, Adaptive))
AnySchedule = Annotated[
    Annotated[Fixed | Stages | ScalingInter | Adaptive, Field(discriminator="kind")],
    WrapValidator(_or_installed),
    SerializeAsAny(),
]


def _check_rising(horizons: Sequence[int]) -> None:
    for before, after in itertools.pairwise(horizons):
        if after < before:
            raise ConfigError(
                "recipe.invalid_value", f"horizon {after} follows {before}; horizons never shrink from stage to stage"
            )
