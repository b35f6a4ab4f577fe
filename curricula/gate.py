"""The gate of a horizon schedule: conditions on the recorded history under which the next horizon begins.

A gate is a pure function of the recorded steps of its span. Its window and its other lengths count steps, conversations
or updates (`Gate.unit`). A rule in steps changes with the number of tokens in a step; one in conversations does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from userrl_core.errors import ConfigError
from userrl_core.settings import Settings

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

COUNTS = ("conversations", "updates")
"""Numbers of a step in which a gate may count. A missing entry means none."""


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

    unit: Literal["steps", "conversations", "updates"] = "steps"
    """What `window`, `at_least`, `at_most` and `hold` count (conversations and updates: local backend)."""

    window: PositiveInt = 10
    """Length of the mean, in units. It is rounded up to whole steps, which have the weight of their units."""

    at_least: NonNegativeInt = 0
    """Never opens before this many units."""

    at_most: PositiveInt | None = None
    """Opens after this many units in any case. Without it, an adaptive schedule whose gate counts steps divides the
    run's steps evenly among its horizons, so that no horizon waits forever for a collapsed policy.
    """

    tokens: PositiveInt | None = None
    """Opens in any case once the span has used this many tokens, with openings and observations."""

    cpu_seconds: PositiveFloat | None = None
    """Opens in any case once the span's steps have used this much processor time, without validations (local backend)."""

    gpu_seconds: PositiveFloat | None = None
    """Opens in any case after this many seconds on the GPU (local backend)."""

    hold: PositiveInt = 1
    """Consecutive units for which the condition must hold, so that one lucky step does not open the gate."""

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
        done = held_for = 0.0
        spent = dict.fromkeys(SPENT, 0.0)
        budgets = [(name, limit) for name in SPENT if (limit := getattr(self, name)) is not None]
        for number, step in enumerate(steps, 1):
            for name in SPENT:
                spent[name] += step.get(name, 0.0)
            done += self._units(step)
            if self.at_most is not None and done >= self.at_most:
                return number
            if any(spent[name] >= limit for name, limit in budgets):
                return number
            held_for = held_for + self._units(step) if self._holds(steps[:number]) else 0.0
            if held_for >= self.hold and done >= self.at_least:
                return number
        return None

    def _holds(self, steps: Sequence[Mapping[str, float]]) -> bool:
        window = self._window(steps)
        if window is None:
            return False
        success, signal, entropy, length = (self._mean(name, window) for name in SIGNALS)
        return (
            (self.success is not None and success is not None and success >= self.success)
            or (self.plateau is not None and success is not None and self._stalls(success, steps[: -len(window)]))
            or (self.signal is not None and signal is not None and signal <= self.signal)
            or (self.entropy is not None and entropy is not None and entropy <= self.entropy)
            or (self.length is not None and length is not None and length >= self.length)
        )

    def _stalls(self, success: float, earlier: Sequence[Mapping[str, float]]) -> bool:
        """Return whether success is not above that of the window before by as much as `plateau` asks."""
        window = self._window(earlier)
        before = None if window is None else self._mean("success", window)
        return before is not None and self.plateau is not None and success - before < self.plateau

    def _units(self, step: Mapping[str, float]) -> float:
        return 1.0 if self.unit == "steps" else step.get(self.unit, 0.0)

    def _window(self, steps: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]] | None:
        """Return the fewest last steps that have a window's units; None if all steps have fewer."""
        units = 0.0
        for length, step in enumerate(reversed(steps), 1):
            units += self._units(step)
            if units >= self.window:
                return steps[-length:]
        return None

    def _mean(self, name: str, window: Sequence[Mapping[str, float]]) -> float | None:
        """Return the mean over a window, weighted by units; None if a step lacks the value."""
        if not all(name in step for step in window):
            return None
        return sum(step[name] * self._units(step) for step in window) / sum(self._units(step) for step in window)
