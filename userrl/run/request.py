"""The request of each flow, one model per flow. Its fields are Prefect's parameters, the command line's and a trial's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from curricula import profile_names, recipe_names
from curricula.host import AUTO
from curricula.recipe import Recipe
from curricula.validation import unknown_key, validated
from curricula.yaml_files import claim_names, find, read
from userrl.run.keys import refuse_keys, refuse_unstorable
from userrl_core.errors import ConfigError
from userrl_core.settings import Settings

M = TypeVar("M", bound=Settings)
T = TypeVar("T")
Backend = Literal["local", "verl"]
Wandb = Literal["offline", "online", "off"]
Tracker = Literal["tensorboard", "mlflow"]


def _choice(*names: str, none: bool = False) -> WithJsonSchema:
    """Return the schema of a choice in Prefect's form, or of a text for a YAML file. none: the choice may be empty."""
    shipped, yaml_file = (
        {"title": "Shipped", "type": "string", "enum": list(names)},
        {"title": "YAML file", "type": "string", "pattern": r"/|\.ya?ml$"},
    )
    return WithJsonSchema({"anyOf": [shipped, yaml_file, *([{"title": "None", "type": "null"}] if none else [])]})


_OVERRIDES = WithJsonSchema(
    {
        "anyOf": [
            {"type": "object", "propertyNames": {"pattern": rf"^({'|'.join(Recipe.model_fields)})($|[.\[])"}},
            {"type": "null"},
        ]
    }
)
"""The schema of overrides: dotted keys of a recipe. Prefect refuses a flow run with another key before it is stored."""

_SHOWN = ConfigDict(use_attribute_docstrings=True)
"""Prefect shows the text under each field. Pydantic reads it in the source, which takes as long as making the model."""


class RunBudget(Settings):
    """The limits of a run. None: no limit of this kind."""

    model_config = _SHOWN

    hours: PositiveFloat | None = None
    """Working hours of its stages, including interrupted attempts."""

    money: PositiveFloat | None = None
    """US dollars of model calls, as far as prices are known."""


class Request(Settings):
    """The request of a flow."""

    model_config = _SHOWN

    @model_validator(mode="before")
    @classmethod
    def _holds_no_key(cls, values: Any) -> Any:
        refuse_keys(values)
        refuse_unstorable(values)
        return values


class RunRequest(Request):
    """The common part of requests for a recipe."""

    recipe: Annotated[str, _choice(*recipe_names())] = "equalized-r2g"
    """Name of a recipe, or a YAML file."""

    profile: Annotated[str | None, _choice(AUTO, *profile_names(), none=True)] = AUTO
    """Profile of sizes and machine. auto: the laptop's without a GPU, else the recipe's first that fits this machine."""

    seed: int = 0
    """Seed of all random draws."""

    name: str = ""
    """A name for the run. Another name makes another run."""

    overrides: Annotated[dict[str, Any] | None, _OVERRIDES] = None
    """Recipe values by dotted key."""

    fresh: bool = False
    """Start a new run even if one with these parameters exists."""

    @field_validator("seed")
    @classmethod
    def _fits_a_column(cls, seed: int) -> int:
        if not 0 <= seed < 2**63:
            raise ValueError("give 0 or a positive integer below 2 to the 63rd")
        return seed

    def with_overrides(self, block: str, *fields: str) -> dict[str, Any]:
        """Return the overrides, with the given fields of the request in this block of the recipe."""
        values = {f"{block}.{field}": getattr(self, field) for field in fields}
        return {**(self.overrides or {}), **{key: value for key, value in values.items() if value is not None}}


class TrainRequest(RunRequest):
    """The request of ``train``."""

    backend: Literal["auto", "local", "verl"] = "auto"
    """Trainer. auto: the profile's."""

    init_from: str | None = None
    """Checkpoint folder or Hugging Face path to start from, instead of the recipe's model."""

    from_stage: str | None = None
    """First stage to run (distill, sft, rl-1 ..., evaluate). Earlier stages must be done already."""

    until: str | None = None
    """Last stage to run."""

    keep_checkpoints: PositiveInt = 2
    """Checkpoints of a stage to keep in addition to the best one."""

    share_cold_start: bool = False
    """Take the cold start of an earlier run of this home that was started with this option and has the same settings,
    demonstrations and code. The weights are the same as when it is trained again. Claims and studies do so. The log has the cold
    start's steps in the run that trained it. The verl backend and a run with init_from train their own."""

    budget: RunBudget | None = None
    """Limits after which training stops with a checkpoint to continue from."""

    dry_run: bool = False
    """Only show the plan."""

    wandb: Wandb = "offline"
    """Weights & Biases logging, in addition to the warehouse."""

    track: tuple[Tracker, ...] = ()
    """Other trackers: TensorBoard's event files, MLflow's files or the server of $MLFLOW_TRACKING_URI."""


class DistillRequest(RunRequest):
    """The request of ``distill``. None keeps the value of recipe and profile."""

    policy: str | None = None
    """The demonstrating policy: scripted, or a served model's name."""

    user: dict[str, Any] | str | None = None
    """The user: a kind, or kind and options."""

    top_k: int | None = None
    """Number of demonstrations to keep."""

    budget: RunBudget | None = None
    """Limits after which the demonstrations stop. They continue once they are raised."""


class EvaluateRequest(RunRequest):
    """The request of ``evaluate``. None keeps the value of recipe and profile."""

    recipe: Annotated[str, _choice(AUTO, *recipe_names())] = AUTO
    """Name of a recipe, or a YAML file. auto: the recipe of the evaluated checkpoint's run, else equalized-r2g."""

    suite: str | None = None
    """Name of a suite, which sets tasks, user, turns, tokens and attempts. None: the recipe's settings."""

    checkpoint: str = "latest"
    """A folder, a run (its best checkpoint), latest, or demonstrator."""

    model: dict[str, Any] | str | None = None
    """A served model instead of a checkpoint: its name, or options of its server such as model, timeout and max_tokens."""

    base_url: str | None = None
    """The served model's OpenAI-compatible server. None: OpenAI."""

    gyms: list[str] | None = None
    """Gyms to evaluate on."""

    horizon: int | None = None
    """Maximum number of agent turns."""

    tasks: int | None = None
    """Test tasks per gym."""

    attempts: int | None = None
    """Trajectories per task."""

    temperature: float | None = None
    """Sampling temperature. 0 is greedy; then attempts differ only if users do."""

    user: dict[str, Any] | str | None = None
    """The user: a kind, or kind and options."""

    concurrency: PositiveInt | None = None
    """Parallel conversations, and requests to a served model. None: 64 and 32."""

    budget: RunBudget | None = None
    """Limits after which the evaluation stops. It continues once they are raised."""

    @property
    def served(self) -> dict[str, Any] | None:
        """The options of the served model's server; None for another policy."""
        if self.model is None:
            return None
        options = {"model": self.model} if isinstance(self.model, str) else self.model
        if self.base_url and options.get("base_url", self.base_url) != self.base_url:
            raise ConfigError(
                "argument.conflict",
                f"The model's options have another base_url than {self.base_url}. Give one of them.",
            )
        return {**({"base_url": self.base_url} if self.base_url else {}), **options}


class SweepRequest(Request):
    """The request of ``sweep``."""

    space: str = "gamma"
    """Name of a shipped space, or a YAML file."""

    parallel: PositiveInt = 2
    """Number of parallel trials."""

    trials: int | None = None
    """Total number of trials, instead of the space's."""

    workers: Literal["deployments", "processes"] = "deployments"
    """deployments: flow runs that any worker takes. processes: child processes."""

    storage: str | None = None
    """An Optuna RDB URL instead of the journal file. $USERRL_SWEEP_STORAGE also sets it and hides a password better."""

    budget: dict[str, float] | None = None
    """hours, gpu_hours and money, instead of the space's."""

    overrides: Annotated[dict[str, Any] | None, _OVERRIDES] = None
    """Recipe overrides common to all trials."""

    poll_seconds: NonNegativeFloat = 2.0
    """Seconds between two polls of the trials."""

    renew: bool = False
    """Start a new edition on the next seed if the last one has ended, as for a schedule. An interrupted edition is continued."""

    fresh: bool = False
    """Start a new edition on the next seed even if the last one has not ended, as for a changed space."""


class ReproduceRequest(Request):
    """The request of ``reproduce``."""

    claim: Annotated[str, _choice(*claim_names())] = "r2g-above-sum"
    """Name of a shipped claim, or a YAML file."""

    seeds: PositiveInt = 8
    """Seeds per arm. Verdicts are given at 8, 16 and 24."""

    first_seed: PositiveInt | None = None
    """First seed to run, instead of the claim's first. So another machine can run seeds that this one leaves out."""

    arm: str | None = None
    """A YAML file with an additional arm (recipe, overrides). The result is exploratory."""

    tokens: PositiveInt | None = None
    """Token budget of every run, instead of the claim's. The result is exploratory."""

    parallel: PositiveInt = 2
    """Number of parallel runs."""

    workers: Literal["deployments", "processes"] = "deployments"
    """deployments: flow runs that any worker takes. processes: child processes."""

    poll_seconds: NonNegativeFloat = 2.0
    """Seconds between two polls of the runs."""


def requested(model: type[M], values: Mapping[str, Any], call: str) -> M:
    """Return a request of these values. Raises ConfigError in a sentence that names every fault.

    Faults are those of fields, an unknown recipe or profile, and beside them override keys that no recipe has. Where the
    override keys alone are wrong, the recipe says so itself.
    """
    faults: list[ConfigError] = []
    try:
        request = validated(model, values, call)
    except ConfigError as error:
        faults.append(error)
    faults += _unknown_names(values)
    if not faults:
        return request
    overrides = values.get("overrides")
    keys = [unknown_key(Recipe, str(key)) for key in overrides] if isinstance(overrides, Mapping) else []
    raise ConfigError(faults[0].code, " ".join([*map(str, faults), *filter(None, keys)])) from faults[0]


def _unknown_names(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    fields: tuple[Literal["recipe", "profile"], ...] = ("recipe", "profile")
    for field in fields:
        name = values.get(field)
        if isinstance(name, str) and name != AUTO:
            try:
                read(find(name, field))
            except ConfigError as error:
                yield error


def takes(model: type[M]) -> Callable[[Callable[[M], T]], Callable[..., T]]:
    """Turn a function of one request into a function of the request's fields, which Prefect shows, checks and passes on.

    The function raises ConfigError with one sentence for invalid values.
    """

    def decorate(function: Callable[[M], T]) -> Callable[..., T]:
        signature = inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=_described(field),
                    annotation=_shown_as(field),
                )
                for name, field in model.model_fields.items()
            ]
        )

        @functools.wraps(function)
        def with_fields(*arguments: Any, **keywords: Any) -> T:
            values = signature.bind(*arguments, **keywords).arguments
            return function(requested(model, values, function.__name__))

        with_fields.__signature__ = signature  # type: ignore[attr-defined]
        return with_fields

    return decorate


def _shown_as(field: Any) -> Any:
    """Return the field's type, with the choices of a form if it has some."""
    has_choices = any(isinstance(entry, WithJsonSchema) for entry in field.metadata)
    return field.rebuild_annotation() if has_choices else field.annotation


def _described(field: Any) -> Any:
    return Field(default=field.default, description=field.description)
