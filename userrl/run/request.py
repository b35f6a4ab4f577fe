"""What a flow was asked: one model per flow. Prefect's parameters, the command line and a sweep's trials are its fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, PositiveFloat, PositiveInt, WithJsonSchema, field_validator, model_validator

from curricula import profile_names, recipe_names
from curricula.claims import claim_names
from curricula.host import AUTO
from curricula.validation import validated
from userrl.run.keys import refuse_keys
from userrl_core.settings import Settings

M = TypeVar("M", bound=Settings)
T = TypeVar("T")
Backend = Literal["local", "verl"]
Wandb = Literal["offline", "online", "off"]


def _choice(*names: str, none: bool = False) -> WithJsonSchema:
    """A list to choose from in Prefect's form, beside a text for a file of one's own. none: whether it may be left empty."""
    shipped, own = {"title": "Shipped", "type": "string", "enum": list(names)}, {"title": "YAML file", "type": "string"}
    return WithJsonSchema({"anyOf": [shipped, own, *([{"title": "None", "type": "null"}] if none else [])]})


class RunBudget(Settings):
    """What a run may spend; none: no limit of this kind."""

    hours: PositiveFloat | None = None
    """Hours in which its stages work, interrupted starts included."""

    money: PositiveFloat | None = None
    """US dollars of model calls, as far as prices are known."""


class Request(Settings):
    """What a flow is asked."""

    @model_validator(mode="before")
    @classmethod
    def _holds_no_key(cls, values: Any) -> Any:
        refuse_keys(values)
        return values


class RunRequest(Request):
    """What every flow over a recipe is asked."""

    recipe: Annotated[str, _choice(*recipe_names())] = "equalized-r2g"
    """Name of a recipe, or a YAML file."""

    profile: Annotated[str | None, _choice(AUTO, *profile_names(), none=True)] = AUTO
    """Sizes and machine; auto: the laptop's without a GPU, else the recipe's first that this machine can hold."""

    seed: int = 0
    """Fixes every random draw."""

    name: str = ""
    """A name for the run, which makes it another than one without."""

    overrides: dict[str, Any] | None = None
    """Dotted keys into the recipe."""

    fresh: bool = False
    """A new run even though one with these parameters exists."""

    @field_validator("seed")
    @classmethod
    def _fits_a_column(cls, seed: int) -> int:
        if not 0 <= seed < 2**63:
            raise ValueError("give 0 or a positive integer below 2 to the 63rd")
        return seed

    def with_overrides(self, block: str, *fields: str) -> dict[str, Any]:
        """The overrides, and in this block of the recipe those fields of the request that were given."""
        given = {f"{block}.{field}": getattr(self, field) for field in fields}
        return {**(self.overrides or {}), **{key: value for key, value in given.items() if value is not None}}


class TrainRequest(RunRequest):
    """What ``train`` is asked."""

    backend: Literal["auto", "local", "verl"] = "auto"
    """Trainer; auto: the profile's."""

    init_from: str | None = None
    """Checkpoint folder or Hugging Face path to start from in place of the recipe's model."""

    from_stage: str | None = None
    """First stage to do (distill, sft, rl-1 ..., evaluate); what comes before it must be done already."""

    until: str | None = None
    """Last stage to do."""

    keep_checkpoints: PositiveInt = 2
    """Checkpoints of a stage that stay beside the best one."""

    budget: RunBudget | None = None
    """Training stops when it is spent, with a checkpoint to go on from."""

    dry_run: bool = False
    """Only show what would be done."""

    wandb: Wandb = "offline"
    """Weights & Biases beside the warehouse."""


class DistillRequest(RunRequest):
    """What ``distill`` is asked; none leaves a value as the recipe and profile say."""

    policy: str | None = None
    """Who demonstrates: scripted, or a served model's name."""

    user: dict[str, Any] | str | None = None
    """Who answers: a kind, or kind and options."""

    top_k: int | None = None
    """How many demonstrations are kept."""


class EvaluateRequest(RunRequest):
    """What ``evaluate`` is asked; none leaves a value as the recipe and profile say."""

    recipe: Annotated[str, _choice(AUTO, *recipe_names())] = AUTO
    """Name of a recipe, or a YAML file; auto: that of the run whose checkpoint is played, else equalized-r2g."""

    suite: str | None = None
    """A suite by name, which says tasks, user, turns, tokens and attempts; none: those of the recipe."""

    checkpoint: str = "latest"
    """A folder, a run (its best checkpoint), latest, or demonstrator."""

    model: str | None = None
    """A served model in place of a checkpoint."""

    base_url: str | None = None
    """The served model's OpenAI-compatible server; none: OpenAI."""

    gyms: list[str] | None = None
    """Gyms that are played."""

    horizon: int | None = None
    """Most agent turns."""

    tasks: int | None = None
    """Test tasks per gym."""

    attempts: int | None = None
    """Trajectories per task."""

    temperature: float | None = None
    """Sampling temperature; 0 is greedy, and its attempts differ only where users do."""

    user: dict[str, Any] | str | None = None
    """Who answers: a kind, or kind and options."""

    concurrency: PositiveInt | None = None
    """Conversations in flight at once, and requests to a served model; none: 64 and 32."""

    budget: RunBudget | None = None
    """It stops when this is spent, and goes on from there when it is raised."""


class SweepRequest(Request):
    """What ``sweep`` is asked."""

    space: str = "gamma"
    """Name of a shipped space, or a YAML file."""

    parallel: PositiveInt = 2
    """Trials at once."""

    trials: int | None = None
    """Trials in all, in place of the space's own number."""

    workers: Literal["deployments", "processes"] = "deployments"
    """deployments: flow runs that any worker takes; processes: children of this one."""

    storage: str | None = None
    """An Optuna RDB URL in place of the journal file; or in $USERRL_SWEEP_STORAGE, where a password is seen by fewer."""

    budget: dict[str, float] | None = None
    """hours, gpu_hours and money in place of the space's own."""

    overrides: dict[str, Any] | None = None
    """Recipe overrides common to all trials."""

    poll_seconds: float = 2.0
    """Seconds between two looks at the trials."""

    renew: bool = False
    """Begin anew on the next seed when the last edition has ended, as a schedule wants; one that was cut off is continued."""


class ReproduceRequest(Request):
    """What ``reproduce`` is asked."""

    claim: Annotated[str, _choice(*claim_names())] = "r2g-above-sum"
    """Name of a shipped claim, or a YAML file."""

    seeds: PositiveInt = 8
    """Seeds of every arm; a verdict is looked for at 8, 16 and 24."""

    arm: str | None = None
    """A YAML file with an arm of one's own (recipe, overrides) beside the registered ones; it is exploratory."""

    tokens: PositiveInt | None = None
    """Budget of every run in place of the claim's; what comes of it is exploratory."""

    parallel: PositiveInt = 2
    """Runs at once."""

    workers: Literal["deployments", "processes"] = "deployments"
    """deployments: flow runs that any worker takes; processes: children of this one."""

    poll_seconds: float = 2.0
    """Seconds between two looks at the runs."""


def takes(model: type[M]) -> Callable[[Callable[[M], T]], Callable[..., T]]:
    """A function of one request becomes one of the request's fields: those are what Prefect shows, checks and passes on.

    The function raises ConfigError, in one sentence, for values that do not fit.
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
        def with_fields(*arguments: Any, **named: Any) -> T:
            given = signature.bind(*arguments, **named).arguments
            return function(validated(model, given, function.__name__))

        with_fields.__signature__ = signature  # type: ignore[attr-defined]
        return with_fields

    return decorate


def _shown_as(field: Any) -> Any:
    """The field's type, with the choices of a form where it has some."""
    has_choices = any(isinstance(each, WithJsonSchema) for each in field.metadata)
    return field.rebuild_annotation() if has_choices else field.annotation


def _described(field: Any) -> Any:
    """Default and description, as Prefect reads them."""
    return Field(default=field.default, description=field.description)
