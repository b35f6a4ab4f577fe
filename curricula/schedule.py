"""Horizon schedules: how many turns a trajectory may take at each training step (AgentGym-RL section 3.3).

Every schedule is a pure function of the step, counted from 1, and, where gates decide, of the recorded history. Nothing
is remembered between calls, so a resumed run cannot see another horizon than an uninterrupted one.
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

MOST_TURNS = 10_000
Turns = Annotated[int, Field(gt=0, le=MOST_TURNS)]
"""A horizon."""

Entry = Mapping[str, Any]
"""What a gate reads of one finished step: ``step`` and a success rate, the share of the step's admitted trajectories that
succeeded; `SIGNALS` and `SPENT` beside it. Trainers append one entry per step and keep the list in the checkpoint."""

History = Sequence[Entry]

SUCCESS = ("success", "train/all/success")
"""Where an entry's success rate may stand. An entry without one (no trajectory of the step could be scored) has the rate of
the step before it; without any, 0, which opens no success gate."""


SIGNALS = ("success", "signal", "entropy", "length")
"""What a gate reads of a step. An entry without one of them has that of the step before it; without any, no such gate opens."""

SPENT = ("tokens", "cpu_seconds", "gpu_seconds")
"""What a step used up; an entry that does not say used nothing."""


class Gate(Settings):
    """When to go on: success is high enough, has stopped rising, there is little left to learn here, or a budget is spent. Any
    of those given suffices."""

    success: float | None = Field(default=None, gt=0.0, le=1.0)
    """Opens when the mean success rate of the window is at least this."""

    plateau: float | None = Field(default=None, ge=0.0)
    """Opens when the window's mean exceeds that of the window before by less than this."""

    signal: float | None = Field(default=None, ge=0.0, le=1.0)
    """Opens when the window's mean share of groups that differ is at most this: little is left to learn at this horizon."""

    entropy: NonNegativeFloat | None = None
    """Opens when the window's mean entropy, in nats, is at most this: before the policy has lost what a longer horizon needs."""

    length: float | None = Field(default=None, gt=0.0, le=1.0)
    """Opens when conversations use at least this share of the horizon's turns, on average: the horizon is what limits them."""

    window: PositiveInt = 10
    """Steps that are averaged."""

    at_least: NonNegativeInt = 0
    """Never opens before this many steps."""

    at_most: PositiveInt | None = None
    """Opens after this many steps in any case. An adaptive schedule whose gate has none divides the run's steps evenly among
    its horizons, so that none waits for ever for a policy that has collapsed."""

    tokens: PositiveInt | None = None
    """Opens in any case once the span's steps have played this many tokens, openings and observations included."""

    cpu_seconds: PositiveFloat | None = None
    """Opens in any case once the span's steps have used this much processor time, validations apart (local backend)."""

    gpu_seconds: PositiveFloat | None = None
    """The same in seconds on the GPU (local backend)."""

    hold: PositiveInt = 1
    """Consecutive steps for which what is watched must hold: one lucky step does not open it."""

    @model_validator(mode="after")
    def _can_open(self) -> Gate:
        watched = (self.success, self.plateau, self.signal, self.entropy, self.length)
        if all(value is None for value in (*watched, self.at_most, self.tokens, self.cpu_seconds, self.gpu_seconds)):
            raise ValueError("the gate can never open; give success, plateau or at_most")
        return self

    @property
    def timed(self) -> bool:
        """Whether it looks at the clock, so that steps have to be timed."""
        return self.cpu_seconds is not None or self.gpu_seconds is not None

    def opens_after(self, steps: Sequence[Mapping[str, float]]) -> int | None:
        """Number of steps after which the gate opens, None while it is closed.

        steps: what the span's steps so far recorded, in order (`SIGNALS`, `SPENT`).
        """
        held = 0
        spent = dict.fromkeys(SPENT, 0.0)
        budgets = [(name, most) for name in SPENT if (most := getattr(self, name)) is not None]
        for done in range(1, len(steps) + 1):
            for name in SPENT:
                spent[name] += steps[done - 1].get(name, 0.0)
            if self.at_most is not None and done >= self.at_most:
                return done
            if any(spent[name] >= most for name, most in budgets):
                return done
            held = held + 1 if self._holds(steps[:done]) else 0
            if held >= self.hold and done >= self.at_least:
                return done
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
        """Mean over the window; None where it is not full."""
        values = [step[name] for step in steps[-self.window :] if name in step]
        return sum(values) / self.window if len(values) == self.window else None


@dataclass(frozen=True, slots=True)
class Level:
    """One span of a schedule: its horizon, its greatest length in steps (None: to the end), its gate."""

    horizon: int
    steps: int | None = None
    gate: Gate | None = None


class Schedule(Settings):
    """Base of all kinds: levels one after the other."""

    def levels(self) -> tuple[Level, ...]:
        """The spans, in order."""
        raise NotImplementedError

    @property
    def adaptive(self) -> bool:
        """Whether the horizon depends on the recorded history."""
        return any(level.gate is not None for level in self.levels())

    def horizon(self, step: int, history: History = ()) -> int:
        """Most agent turns of a trajectory in this step, steps from 1."""
        return self.levels()[self.level(step, history)].horizon

    def level(self, step: int, history: History = ()) -> int:
        """Index of the span that holds this step; the last span where the schedule is over."""
        return place(self.levels(), step, history)[0]


def place(levels: Sequence[Level], step: int, history: History = ()) -> tuple[int, int, int | None]:
    """Index, first step and last step (None: open) of the span that holds a step.

    Raises ConfigError for steps below 1, and where a gate must decide on a step that the history lacks.
    """
    if step < 1:
        raise ConfigError(f"Training steps count from 1; there is no step {step}.")
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
    raise ConfigError("The schedule has no span; give at least one horizon.")


def _gated_end(
    gate: Gate, first: int, last: int | None, step: int, recorded: Mapping[int, Mapping[str, float]]
) -> int | None:
    """The span's last step as the history before ``step`` shows it."""
    known = []
    for s in range(first, step if last is None else min(step, last + 1)):
        if s not in recorded:
            raise ConfigError(f"The history lacks step {s}, so the gate cannot say which horizon step {step} has.")
        known.append(recorded[s])
    opened = gate.opens_after(known)
    return last if opened is None else first + opened - 1


def _recorded(history: History) -> dict[int, dict[str, float]]:
    """What a gate reads, by step. Of two entries of a step the later counts."""
    steps: dict[int, dict[str, float]] = {}
    latest: dict[str, float] = {"success": 0.0}
    for step, entry in sorted({int(entry["step"]): entry for entry in history}.items()):
        rate = next((float(entry[name]) for name in SUCCESS if entry.get(name) is not None), latest["success"])
        known = {name: float(entry[name]) for name in (*SIGNALS, *SPENT) if entry.get(name) is not None}
        latest = {name: value for name, value in (latest | known).items() if name in SIGNALS} | {"success": rate}
        steps[step] = latest | {name: value for name, value in known.items() if name in SPENT}
    return steps


class Fixed(Schedule):
    """The same horizon all the way."""

    kind: Literal["fixed"] = "fixed"
    """Which schedule this is."""

    turns: Turns
    """The horizon, in agent turns."""

    def levels(self) -> tuple[Level, ...]:
        """One open span."""
        return (Level(self.turns),)


class Span(Settings):
    """One span of explicit stages."""

    steps: PositiveInt
    """Training steps (with a gate: at most)."""

    horizon: Turns
    """Most agent turns."""

    gate: Gate | None = None
    """Ends the span early."""


class Stages(Schedule):
    """Explicit spans; made from the recipe's stages where no other schedule is named."""

    kind: Literal["stages"] = "stages"
    """Which schedule this is."""

    spans: tuple[Span, ...]
    """The spans, in order."""

    @model_validator(mode="after")
    def _never_shrinks(self) -> Stages:
        _check_rising([span.horizon for span in self.spans])
        return self

    def levels(self) -> tuple[Level, ...]:
        """The spans as they are."""
        return tuple(Level(span.horizon, span.steps, span.gate) for span in self.spans)


class ScalingInter(Schedule):
    """ScalingInter-RL: the horizon grows every delta steps up to a cap (AgentGym-RL section 3.3)."""

    kind: Literal["scaling_inter"] = "scaling_inter"
    """Which schedule this is."""

    start: Turns
    """Horizon of the first span, the paper's h1."""

    increment: PositiveInt | tuple[PositiveInt, ...]
    """What is added after every span, the paper's delta_h: a number, or one per increase where they differ."""

    every: PositiveInt
    """Training steps of a span, the paper's delta."""

    cap: Turns
    """Greatest horizon."""

    @model_validator(mode="after")
    def _has_room(self) -> ScalingInter:
        if self.cap < self.start:
            raise ValueError(f"cap {self.cap} lies below start {self.start}; horizons never shrink")
        if isinstance(self.increment, tuple) and not self.increment:
            raise ValueError("increment is empty; give what is added after every span")
        return self

    def levels(self) -> tuple[Level, ...]:
        """Spans of equal length, the last one open."""
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
    """The next horizon comes when a gate opens. It never shrinks, whatever success does later."""

    kind: Literal["adaptive"] = "adaptive"
    """Which schedule this is."""

    horizons: tuple[Turns, ...] = Field(min_length=1)
    """The horizons, in rising order."""

    gate: Gate
    """Opens the way to the next horizon; it judges the steps at the present horizon alone."""

    @model_validator(mode="after")
    def _never_shrinks(self) -> Adaptive:
        _check_rising(self.horizons)
        return self

    def within(self, steps: int) -> Adaptive:
        """The same in a run of so many steps: a gate without at_most gets its horizon's even share of them."""
        if self.gate.at_most is not None:
            return self
        share = max(steps // len(self.horizons), 1)
        return self.model_copy(update={"gate": self.gate.model_copy(update={"at_most": share})})

    def levels(self) -> tuple[Level, ...]:
        """One gated span per horizon, the last one open."""
        return (*(Level(h, None, self.gate) for h in self.horizons[:-1]), Level(self.horizons[-1]))


ENTRY_POINT = "userrl.schedules"
"""Kinds of schedules from installed packages: the entry point's name is the kind, its object a `Schedule` of that ``kind``."""


def _or_installed(value: Any, ours: ValidatorFunctionWrapHandler) -> Any:
    """A schedule of ours, or of the package that brings its kind; an unknown kind is refused with ours."""
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
            raise ValueError(f"horizon {after} follows {before}; horizons never shrink from stage to stage")
