"""Parameters of a search space: a set of options or a range.

An option is a value for one dotted recipe key, or a labelled bundle of several overrides (a horizon schedule is three numbers
that only make sense together). Optuna stores plain values, so a list or a mapping is stored as its JSON text: its label.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial
from pydantic import Field, PositiveFloat, model_validator

from userrl_core.errors import ConfigError
from userrl_core.settings import MOST, Settings

ROUNDING = 1e-9
"""How far a multiple of a step may lie beyond the end of its range."""


def label_of(value: Any) -> Any:
    """Return a value as Optuna stores it: a list or a mapping as JSON text, anything else as it is."""
    return json.dumps(value, sort_keys=True) if isinstance(value, (list, tuple, Mapping)) else value


def params_of(trial: FrozenTrial) -> dict[str, Any]:
    """Return a trial's parameters with their labels, also of a queued trial."""
    queued = trial.system_attrs.get("fixed_params", {})
    return {name: label_of(value) for name, value in {**queued, **trial.params}.items()}


class Options(Settings):
    """A finite set of values."""

    kind: Literal["options"] = "options"

    key: str | None = None
    """Recipe key for the value; null if every option is a bundle of overrides."""

    options: list[Any] | dict[str, dict[str, Any]]
    """Values for `key`, or label -> overrides."""

    @model_validator(mode="after")
    def _fits(self) -> Options:
        if not self.options:
            raise ConfigError("sweep.bad_space", "options is empty: a parameter needs at least one value")
        if isinstance(self.options, list) != (self.key is not None):
            raise ConfigError(
                "sweep.bad_space", "a list of options needs a key; only labelled sets of overrides have none"
            )
        return self

    def keys(self, label: Any) -> set[str]:
        """Return the recipe keys that this option sets."""
        return set(self.options.get(label, ())) if isinstance(self.options, dict) else {str(self.key)}

    def labels(self) -> list[Any]:
        """Return Optuna's choices."""
        return [label_of(option) for option in self.options]

    def has(self, label: Any) -> bool:
        """Return whether this is one of the options."""
        return label in self.labels()

    def suggest(self, name: str, trial: optuna.Trial) -> dict[str, Any]:
        """Return the overrides of the sampler's option.

        A stored study cannot get further choices. A later option of a grid therefore stays in the queued values alone.
        """
        trials = trial.study.get_trials(deepcopy=False)
        stored = (t.distributions[name] for t in trials if name in t.distributions)
        choices = next((list(d.choices) for d in stored if isinstance(d, CategoricalDistribution)), self.labels())
        queued = trials[trial.number].system_attrs.get("fixed_params", {})
        if name in queued and queued[name] not in choices:
            return self.overrides(label_of(queued[name]))
        return self.overrides(label_of(trial.suggest_categorical(name, choices)))

    def overrides(self, label: Any) -> dict[str, Any]:
        """Return the overrides of one option."""
        if isinstance(self.options, dict):
            return dict(self.options[label])
        assert self.key is not None  # the validator guarantees it
        return {self.key: self.options[self.labels().index(label)]}

    def faults(self) -> Iterator[str]:
        """Yield what makes these options contradictory, each as part of a sentence."""
        values = list(self.options.values() if isinstance(self.options, dict) else self.options)
        for value in values:
            try:
                json.dumps(value, sort_keys=True, allow_nan=False)
            except (TypeError, ValueError):
                yield f"option {value!r} is no value of a recipe; use text, finite numbers, true, false, lists and mappings"
                return
        counts = Counter(map(_comparable, values))
        repeated = next((value for value in values if counts[_comparable(value)] > 1), None)
        if max(counts.values()) > 1:
            yield f"options has {label_of(repeated)} twice; remove one"
        kinds = sorted({_kind(value) for value in values if value is not None})
        if len(kinds) > 1:
            yield (
                f"options has a {' and a '.join(kinds)}; give values of one type, "
                "or labelled sets of overrides such as {a: {KEY: VALUE}}"
            )


def _comparable(value: Any) -> str:
    """Return equal texts for equal values: 1 and 1.0 are the same value of a recipe, 1 and true are not."""
    return json.dumps(json.loads(json.dumps(value), parse_int=float), sort_keys=True)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth value"
    if isinstance(value, (int, float)):
        return "number"
    return "text" if isinstance(value, str) else "mapping" if isinstance(value, Mapping) else "list"


class Range(Settings):
    """An interval of numbers, both ends included."""

    kind: Literal["range"]

    key: str
    """Recipe key for the value."""

    low: float
    """Smallest value."""

    high: float
    """Largest value."""

    log: bool = False
    """Sample the logarithm (learning rates)."""

    step: PositiveFloat | None = None
    """Only multiples of this above low; not together with log."""

    integer: bool = False
    """Whole numbers."""

    @model_validator(mode="after")
    def _fits(self) -> Range:
        if self.low >= self.high:
            raise ConfigError("sweep.bad_space", f"low {self.low:g} must be below high {self.high:g}")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ConfigError("sweep.bad_space", "a logarithmic range needs low > 0 and no step")
        return self

    def keys(self, label: Any) -> set[str]:
        """Return the recipe key that every value sets."""
        return {self.key}

    def labels(self) -> list[Any]:
        """Return the grid of this range. Raises ConfigError without a step: a grid needs finitely many values."""
        if self.step is None:
            raise ConfigError(
                "sweep.bad_space",
                f"The grid sampler needs a finite number of values. Give '{self.key}' a step or options.",
            )
        count = int((self.high - self.low) / self.step + 1e-9) + 1
        values = [self.low + i * self.step for i in range(count)]
        return [int(v) for v in values] if self.integer else values

    def has(self, label: Any) -> bool:
        """Return whether this value is in the range."""
        return isinstance(label, (int, float)) and self.low - ROUNDING <= label <= self.high + ROUNDING

    def suggest(self, name: str, trial: optuna.Trial) -> dict[str, Any]:
        """Return the override with the sampler's value."""
        if self.integer:
            step = int(self.step or 1)
            return {self.key: trial.suggest_int(name, int(self.low), int(self.high), log=self.log, step=step)}
        return {self.key: trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)}

    def overrides(self, label: Any) -> dict[str, Any]:
        """Return the override of one value."""
        return {self.key: label}

    def faults(self) -> Iterator[str]:
        """Yield what makes this range contradictory, each as part of a sentence."""
        fractions = [
            f"{name} {value:g}"
            for name, value in (("low", self.low), ("high", self.high), ("step", self.step))
            if value is not None and not value.is_integer()
        ]
        if self.integer and fractions:
            yield f"integer: true needs whole numbers, and {fractions[0]} is none"
        if self.step is not None and self.step > self.high - self.low:
            yield f"step {self.step:g} is larger than the range from {self.low:g} to {self.high:g}"
        if self.step is not None and (self.high - self.low) / self.step > MOST:
            yield f"step {self.step:g} makes more than {MOST:,} values from {self.low:g} to {self.high:g}"


Parameter = Annotated[Options | Range, Field(discriminator="kind")]
