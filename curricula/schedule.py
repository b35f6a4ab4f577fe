"""Horizon schedules: the maximum turns of a trajectory at each training step (AgentGym-RL section 3.3).

Every schedule is a pure function of the step, counted from 1, of the recorded history if gates or probes decide, and of
the run's seed if horizons are drawn. Nothing is remembered between calls, so a resumed run has the same horizons as an
uninterrupted one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    PositiveInt,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from curricula.gate import COUNTS, SIGNALS, SPENT, SUCCESS, Gate, History
from userrl_core.errors import ConfigError
from userrl_core.installed.same_name import installed_kind
from userrl_core.seeding import derive_seed
from userrl_core.settings import Settings

MAX_TURNS = 10_000
Turns = Annotated[int, Field(gt=0, le=MAX_TURNS)]
"""A horizon."""


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
    # Without gates a horizon follows from the step alone, and no history is needed.
    recorded = _recorded(history) if gated else {}
    first = 1
    for index, level in enumerate(levels):
        last = None if level.steps is None else first + level.steps - 1
        # The last span's gate has nothing to open.
        if level.gate is not None and index < len(levels) - 1:
            last = _gated_end(level.gate, first, last, step, recorded)
        # Steps beyond the schedule's end keep its last horizon.
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
        measured = {name: float(entry[name]) for name in (*SIGNALS, *SPENT, *COUNTS) if entry.get(name) is not None}
        latest = {name: value for name, value in (latest | measured).items() if name in SIGNALS} | {"success": rate}
        steps[step] = latest | {name: value for name, value in measured.items() if name not in SIGNALS}
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
            # h_(i+1) = h_i + delta_h (AgentGym-RL section 3.3), up to the cap.
            horizons.append(min(horizons[-1] + rise, self.cap))
        # The last span is open: training continues at the largest horizon.
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
        """Return the schedule for a run of so many steps: a gate in steps without at_most gets its horizon's even share."""
        if self.gate.at_most is not None or self.gate.unit != "steps":
            return self
        share = max(steps // len(self.horizons), 1)
        return self.model_copy(update={"gate": self.gate.model_copy(update={"at_most": share})})

    def levels(self) -> tuple[Level, ...]:
        """Return one gated span per horizon, the last one open."""
        return (*(Level(h, None, self.gate) for h in self.horizons[:-1]), Level(self.horizons[-1]))


class GroupSchedule(Schedule):
    """Base of schedules in which the groups of one step may have different horizons (local backend)."""

    horizons: tuple[Turns, ...] = Field(min_length=1)
    """The horizons, in rising order."""

    @model_validator(mode="after")
    def _rises(self) -> Self:
        _check_rising(self.horizons)
        return self

    @property
    def adaptive(self) -> bool:
        """Return True: no stage has one horizon."""
        return True

    def levels(self) -> tuple[Level, ...]:
        """Return the horizons from the smallest to the largest. They are not spans."""
        return tuple(Level(horizon) for horizon in self.horizons)

    def horizon(self, step: int, history: History = (), group: int | None = None, seed: int = 0) -> int:
        """Return the horizon of one group, counted from 0 in its step, or of the step. seed: the run's."""
        raise NotImplementedError


class Drawn(GroupSchedule):
    """A horizon drawn for each group, each with the same probability. The baseline of all rules."""

    kind: Literal["drawn"] = "drawn"
    """Kind of the schedule."""

    def horizon(self, step: int, history: History = (), group: int | None = None, seed: int = 0) -> int:
        """Return the drawn horizon, which depends on seed, step and group alone. Without a group return the largest."""
        if group is None:
            return self.horizons[-1]
        # From a seed and not from a generator's state: a restarted step draws the same horizons.
        return self.horizons[derive_seed(seed, "horizon", step, group) % len(self.horizons)]


class Probes(GroupSchedule):
    """One group in `every` plays at the largest horizon, and shows which horizon the others need.

    The agent does not see the horizon, so a conversation that succeeds in t turns succeeds at every horizon from t on.
    The other groups get the smallest horizon at which the probes have `share` of their success. It can shrink.
    """

    kind: Literal["probes"] = "probes"
    """Kind of the schedule."""

    every: PositiveInt = 16
    """One group in this many is a probe, counted over the whole run."""

    share: float = Field(default=0.95, gt=0.0, le=1.0)
    """Share of the success at the largest horizon that the chosen horizon must have."""

    window: PositiveInt = 80
    """Number of the latest conversations at the largest horizon that decide. Before there are as many, and while
    none of them succeeds, the smallest horizon is used."""

    def horizon(self, step: int, history: History = (), group: int | None = None, seed: int = 0) -> int:
        """Return the largest horizon for a probe, and the chosen one for other groups and for the step."""
        earlier = _before(step, history)
        if group is not None and (sum(int(entry.get("groups") or 0) for entry in earlier) + group) % self.every == 0:
            return self.horizons[-1]
        turns = [turns for entry in earlier for turns in entry.get("probes") or ()][-self.window :]
        successes = sum(each > 0 for each in turns)
        if len(turns) < self.window:
            return self.horizons[0]
        return next(h for h in self.horizons if sum(0 < each <= h for each in turns) >= self.share * successes)


def _before(step: int, history: History) -> list[Mapping[str, Any]]:
    """Return the entries of the steps before a step, in order. If a step has two entries, the later one counts."""
    entries = {int(entry["step"]): entry for entry in history}
    return [entry for number, entry in sorted(entries.items()) if number < step]


ENTRY_POINT = "userrl.schedules"
"""Kinds of schedules from installed packages. The entry point's name is the ``kind``, its object a `Schedule` class."""


def _or_installed(value: Any, ours: ValidatorFunctionWrapHandler) -> Any:
    return installed_kind(value, ours, Schedule, ENTRY_POINT, OURS, "schedule.bad_package")


OURS = tuple(kind.model_fields["kind"].default for kind in (Fixed, Stages, ScalingInter, Adaptive, Drawn, Probes))
AnySchedule = Annotated[
    Annotated[Fixed | Stages | ScalingInter | Adaptive | Drawn | Probes, Field(discriminator="kind")],
    WrapValidator(_or_installed),
    SerializeAsAny(),
]


def _check_rising(horizons: Sequence[int]) -> None:
    for before, after in itertools.pairwise(horizons):
        if after < before:
            raise ConfigError(
                "recipe.invalid_value", f"horizon {after} follows {before}; horizons never shrink from stage to stage"
            )
