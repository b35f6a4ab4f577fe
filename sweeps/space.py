"""Search spaces: a sweep's parameters, objectives and budget. YAML checked by pydantic.

All changes of a trial are recipe overrides, so that a trial is an ordinary run and the winner an ordinary recipe.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import optuna
from optuna.trial import FrozenTrial
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError, model_validator

from curricula import yaml_files
from curricula.merge import leaves
from curricula.validation import validated
from sweeps.parameters import Options, Parameter, Range, params_of
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
        queries = sorted(p.stem for p in QUERIES.glob("*.sql"))
        for query in [o.query for o in self.objectives] + [c.query for c in self.constraints]:
            if query not in queries:
                raise ConfigError(
                    "warehouse.unknown_query",
                    f"there is no query '{query}'{nearest(query, queries)}; known: {', '.join(queries)}",
                )
        return self

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]:
        """Return the recipe overrides of a trial: the common ones, then the sampler's value of each parameter."""
        overrides = dict(self.overrides)
        for name, parameter in self.parameters.items():
            overrides.update(parameter.suggest(name, trial))
        return overrides

    def with_common(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recipe overrides of a point: the common ones, then those of each parameter's label."""
        overrides = dict(self.overrides)
        for name, label in params.items():
            overrides.update(self.parameters[name].overrides(label))
        return overrides

    def found(self, trial: FrozenTrial) -> dict[str, Any]:
        """Return the overrides that a trial's parameters set, without those that all trials have."""
        labels = [(self.parameters[name], label) for name, label in params_of(trial).items() if name in self.parameters]
        keys = {key for parameter, label in labels for key in parameter.keys(label)}
        return {key: value for key, value in trial.user_attrs["overrides"].items() if key in keys}

    def configuration(self, overrides: Mapping[str, Any]) -> str:
        """Return the identity of a configuration. Equal overrides are the same trial."""
        return content_hash([self.recipe, self.profile, self.seed, dict(overrides)])

    def faults(self) -> Iterator[str]:
        """Yield what is contradictory here, each as part of a sentence. A stored space may have such faults."""
        for name, parameter in self.parameters.items():
            yield from (f"parameters.{name}: {fault}" for fault in parameter.faults())
        for (first, left), (second, right) in combinations(self.parameters.items(), 2):
            if both := sorted(_keys(left) & _keys(right)):
                yield f"parameters {first} and {second} both set {both[0]}; a trial has one value of it"
        try:
            json.dumps(self.overrides, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError):
            yield "overrides has a value that no recipe has; use text, finite numbers, true, false, lists and mappings"
        if self.sampler.name == "grid":
            for name, parameter in self.parameters.items():
                if isinstance(parameter, Range) and parameter.step is None:
                    yield f"parameters.{name}: a grid needs finitely many values; give a step or options"
        numbers = {"seed": self.seed, "retries": self.retries, "confirm.top": self.confirm.top}
        numbers |= {"sampler.seed": self.sampler.seed, "pruning.warmup_steps": self.pruning.warmup_steps}
        numbers |= {f"confirm.seeds.{index}": seed for index, seed in enumerate(self.confirm.seeds)}
        for key, number in numbers.items():
            # numpy's generator of the sampler takes seeds of 32 bits, and the warehouse those of 63.
            limit = 2 ** (32 if key == "sampler.seed" else 63) - 1
            if not 0 <= number <= limit:
                yield f"{key} is {number}; give a number from 0 to {limit}"
        if len(set(self.confirm.seeds)) < len(self.confirm.seeds):
            yield "confirm.seeds has a seed twice; the same run again confirms nothing"
        if self.seed in self.confirm.seeds:
            yield f"confirm.seeds has {self.seed}, the seed of the trials; a fresh seed is another one"

    def refuse_faults(self, subject: str) -> Space:
        """Return this space. Raises ConfigError in one sentence that begins with ``subject`` if it is contradictory."""
        for fault in self.faults():
            raise ConfigError("sweep.bad_space", f"{subject}: {fault}.")
        return self


def _keys(parameter: Parameter) -> set[str]:
    if not isinstance(parameter, Options):
        return set(parameter.keys(None))
    return {leaf for label in parameter.labels() for leaf, _ in leaves(parameter.overrides(label))}


def load_space(name_or_path: str | Path) -> Space:
    """Load a shipped space by name, or a YAML file. Raises ConfigError for an invalid space."""
    names = sorted(path.stem for path in SPACES.glob("*.yaml"))
    path = Path(name_or_path) if yaml_files.is_path(name_or_path) else SPACES / f"{name_or_path}.yaml"
    if path.parent == SPACES and path.stem not in names:
        raise ConfigError(
            "sweep.no_such_sweep",
            f"There is no sweep '{name_or_path}'{nearest(str(name_or_path), names)}. Known: {', '.join(names)}.",
        )
    values = {"name": path.stem, "source": "ours", **yaml_files.read(path)}
    if missing := [key for key in ("recipe", "parameters") if key not in values]:
        raise ConfigError(
            "sweep.bad_space",
            f"Sweep {path.name} has no {' and no '.join(missing)}. A sweep file needs a recipe and parameters: {EXAMPLE}.",
        )
    try:
        space = validated(Space, values, f"sweep {path.name}")
    except ConfigError as error:
        if values["parameters"] and not _concerns_a_parameter(error):
            raise
        raise ConfigError(
            error.code, f"{error} A file with each form of a parameter:\n{WHOLE_EXAMPLE.rstrip()}"
        ) from error
    return space.refuse_faults(f"Sweep {path.name}")


def _kind(parameter: Mapping[str, Any]) -> str:
    """Return the kind of a parameter that names none: a range if it has a limit, else options."""
    return "range" if parameter.keys() & {"low", "high"} else "options"


def _concerns_a_parameter(error: ConfigError) -> bool:
    """Return whether the first problem of an invalid space is the form of its parameters."""
    cause = error.__cause__
    return isinstance(cause, ValidationError) and cause.errors()[0]["loc"][:1] == ("parameters",)
