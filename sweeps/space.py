"""Search spaces: a sweep's parameters, objectives and budget. YAML checked by pydantic.

A parameter is either a set of options or a range. An option is a value for one dotted recipe key, or a labelled bundle of
several overrides (a horizon schedule is three numbers that only make sense together). All changes of a trial are recipe
overrides, so that a trial is an ordinary run and the winner an ordinary recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import optuna
from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from curricula import yaml_files
from curricula.validation import validated
from userrl_core.errors import ConfigError
from userrl_core.seeding import content_hash
from userrl_core.settings import Settings
from userrl_core.suggest import nearest

SPACES = Path(__file__).parent / "spaces"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
"""Valid names of sweeps: one plain folder name."""

QUERIES = Path(__file__).parent / "queries"

EXAMPLE = "`recipe: equalized-r2g` and `parameters: {gamma: {key: credit.gamma, options: [0.6, 0.8]}}`"
WHOLE_EXAMPLE = """
recipe: equalized-r2g
parameters:
  gamma: {key: credit.gamma, options: [0.6, 0.8, 0.9]}
  rate: {kind: range, key: algorithm.lr, low: 1.0e-4, high: 1.0e-2, log: true}
  batch: {kind: range, key: algorithm.batch, low: 4, high: 16, step: 4, integer: true}
  reward:
    options:
      sums: {credit.shaping: naive, credit.score: sum}
      turns: {credit.shaping: equalized, credit.score: r2g}
"""
"""A file of a space with each form of a parameter."""


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

    def labels(self) -> list[Any]:
        """Return Optuna's choices."""
        return list(self.options)

    def suggest(self, name: str, trial: optuna.Trial) -> dict[str, Any]:
        """Return the overrides of the sampler's option."""
        return self.overrides(trial.suggest_categorical(name, self.labels()))

    def overrides(self, label: Any) -> dict[str, Any]:
        """Return the overrides of one option."""
        if isinstance(self.options, dict):
            return dict(self.options[label])
        assert self.key is not None  # the validator guarantees it
        return {self.key: label}


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

    def suggest(self, name: str, trial: optuna.Trial) -> dict[str, Any]:
        """Return the override with the sampler's value."""
        if self.integer:
            step = int(self.step or 1)
            return {self.key: trial.suggest_int(name, int(self.low), int(self.high), log=self.log, step=step)}
        return {self.key: trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)}

    def overrides(self, label: Any) -> dict[str, Any]:
        """Return the override of one value."""
        return {self.key: label}


Parameter = Annotated[Options | Range, Field(discriminator="kind")]


class Objective(Settings):
    """One number per run, read from the warehouse by a named query (``sweeps/queries/<query>.sql``)."""

    query: str
    """Name of a query, such as ``validation_score``."""

    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether more or less is better."""


class Constraint(Settings):
    """An upper limit on a query. A run above it is infeasible: kept and shown, but never best."""

    query: str
    """Name of a query."""

    at_most: float
    """Largest value that a feasible run may have."""


class Sampler(Settings):
    """Optuna's sampler that proposes trials."""

    name: Literal["tpe", "cmaes", "gp", "grid", "random", "qmc", "nsga2"] = "tpe"
    """Optuna's name of the sampler."""

    seed: int = 0
    """Seed of the sampler's own generator."""

    startup: PositiveInt = 5
    """Random trials before a model-based sampler starts to model."""


class SweepBudget(Settings):
    """Limits after which a sweep starts no trial and cancels the running ones. null: no limit of this kind.

    Hours, GPU-hours and money cover trials, retries and the confirmation. A cancelled run keeps its checkpoint.
    """

    trials: PositiveInt = 12
    """Trials that count: finished, pruned or failed for good. Repeats of a known configuration do not count."""

    hours: PositiveFloat | None = None
    """Wall hours of the running sweep, over all its resumptions."""

    gpu_hours: PositiveFloat | None = None
    """Trainer hours times the profile's GPUs, summed over runs. On a laptop the CPU slot counts as one."""

    money: NonNegativeFloat | None = None
    """US dollars of model calls, from the cost ledger; 0 allows only free calls."""


class Pruning(Settings):
    """Early stopping of trials that lag behind others at the same stage and horizon (rewards across horizons do not compare)."""

    enabled: bool = True
    """False never prunes."""

    percentile: Annotated[float, Field(gt=0, lt=100)] = 50.0
    """A trial below this percentile of the others' values at the same point is pruned."""

    min_trials: PositiveInt = 3
    """Number of other trials needed at a point for a comparison."""

    warmup_steps: int = 0
    """Training steps before the first comparison."""


class Confirm(Settings):
    """Re-runs of the best configurations on fresh seeds before one is called best."""

    top: int = 1
    """Number of configurations that are run again."""

    seeds: tuple[int, ...] = (101, 102, 103)
    """Seeds of these runs."""

    reserve: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """Share of the budget's hours, GPU-hours and money that the search leaves for these re-runs."""


class Space(Settings):
    """A named sweep."""

    name: Annotated[str, Field(pattern=NAME)]
    """Name of its folder and study and prefix of its runs' names: letters, digits, '.', '_' and '-'."""

    source: str
    """Source of the grid (paper section), or ``ours``."""

    recipe: str
    """Name of the recipe that trials vary, or a YAML file."""

    profile: str = "laptop"
    """Profile of every trial."""

    overrides: dict[str, Any] = Field(default_factory=dict)
    """Recipe overrides common to all trials."""

    parameters: dict[str, Parameter]
    """Parameters by name: options or ranges."""

    objectives: tuple[Objective, ...] = (Objective(query="validation_score"),)
    """Values that the sweep optimises."""

    constraints: tuple[Constraint, ...] = ()
    """Bounds on further values."""

    sampler: Sampler = Sampler()
    """How trials are proposed."""

    budget: SweepBudget = SweepBudget()
    """Limits of the sweep."""

    pruning: Pruning = Pruning()
    """When a lagging trial is stopped."""

    confirm: Confirm = Confirm()
    """Runs of the leaders on fresh seeds."""

    seed: int = 1
    """Seed of every trial's run. The confirmation uses others."""

    retries: int = 2
    """Restarts of a failed or killed trial before it counts as failed."""

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and isinstance(data.get("parameters"), Mapping):
            parameters = {
                name: {"kind": _kind(p), **p} if isinstance(p, Mapping) and "kind" not in p else p
                for name, p in data["parameters"].items()
            }
            return {**data, "parameters": parameters}
        return data

    @model_validator(mode="after")
    def _fits(self) -> Space:
        if not self.parameters:
            raise ConfigError("sweep.bad_space", "parameters is empty: a sweep needs at least one parameter to vary")
        if not self.objectives:
            raise ConfigError("sweep.bad_space", "objectives is empty: a sweep needs at least one objective")
        for query in [o.query for o in self.objectives] + [c.query for c in self.constraints]:
            if not (QUERIES / f"{query}.sql").is_file():
                known = sorted(p.stem for p in QUERIES.glob("*.sql"))
                raise ConfigError(
                    "warehouse.unknown_query",
                    f"there is no query '{query}'{nearest(query, known)}; known: {', '.join(known)}",
                )
        return self

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]:
        """Return the recipe overrides of a trial: the common ones, then the sampler's value of each parameter."""
        overrides = dict(self.overrides)
        for name, parameter in self.parameters.items():
            overrides.update(parameter.suggest(name, trial))
        return overrides

    def configuration(self, overrides: Mapping[str, Any]) -> str:
        """Return the identity of a configuration. Equal overrides are the same trial."""
        return content_hash([self.recipe, self.profile, self.seed, dict(overrides)])


def load_space(name_or_path: str | Path) -> Space:
    """Load a shipped space by name, or a YAML file. Raises ConfigError for an invalid space."""
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        path = SPACES / f"{name_or_path}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in SPACES.glob("*.yaml"))
        raise ConfigError(
            "sweep.no_such_sweep",
            f"There is no sweep '{name_or_path}'{nearest(str(name_or_path), known)}. Known: {', '.join(known)}.",
        )
    values = {"name": path.stem, "source": "ours", **yaml_files.read(path)}
    if missing := [key for key in ("recipe", "parameters") if key not in values]:
        raise ConfigError(
            "sweep.bad_space",
            f"Sweep {path.name} has no {' and no '.join(missing)}. A sweep file needs a recipe and parameters: {EXAMPLE}.",
        )
    try:
        return validated(Space, values, f"sweep {path.name}")
    except ConfigError as error:
        if values["parameters"] and not _concerns_a_parameter(error):
            raise
        raise ConfigError(
            error.code, f"{error} A file with each form of a parameter:\n{WHOLE_EXAMPLE.rstrip()}"
        ) from error


def _kind(parameter: Mapping[str, Any]) -> str:
    """Return the kind of a parameter that names none: a range if it has a limit, else options."""
    return "range" if parameter.keys() & {"low", "high"} else "options"


def _concerns_a_parameter(error: ConfigError) -> bool:
    """Return whether the first problem of an invalid space is the form of its parameters."""
    cause = error.__cause__
    return isinstance(cause, ValidationError) and cause.errors()[0]["loc"][:1] == ("parameters",)
