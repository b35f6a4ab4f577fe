"""A suite: tasks, user, turns, tokens, temperature and attempts of one published evaluation, each with its source.

A suite is YAML under this folder. ``NAME:VARIANT`` lays a variant over it, ``NAME:A+B`` two, the later one on top. Every
value names the section of its paper in ``sources``, or is marked ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator

from curricula.schedule import Turns
from curricula.spec import GymSetup, User
from curricula.validation import block_of, validated
from curricula.yaml_files import find, read, suite_names
from userrl_core.errors import ConfigError
from userrl_core.gyms.released_texts import Prompts
from userrl_core.settings import Settings
from userrl_core.suggest import nearest

__all__ = ["Suite", "load_suite", "suite_named", "suite_names"]

Protocol = Literal["interact", "native"]
Metric = Literal[
    "score",
    "effective_turns",
    "time_weighted",
    "pass_hat_k",
    "pass_at_k",
    "earned_at_k",
    "best_at_k",
    "avg_number_of_1",
    "avg_number_of_08",
]

_ABOUT = frozenset({"name", "about", "beside", "source", "sources", "variants", "variant"})
"""Keys that are not settings and need no source."""


class Suite(Settings):
    """One evaluation by name."""

    name: str
    """Name of the suite."""

    variant: str = ""
    """The variants applied to it, joined by +; empty: as published."""

    about: str
    """The measured quantity in one sentence."""

    source: str
    """Paper and section that it follows, or ours."""

    beside: str = ""
    """The paper's table that its scores stand beside, or the beginning of its name; empty: none."""

    sources: dict[str, str] = Field(default_factory=dict)
    """Source of each value, by key."""

    gyms: Literal["paper", "every"] | tuple[str, ...]
    """Gyms to evaluate: the eight of UserRL's table 3, every quick gym (`Gym.slow`) that can run here, or some."""

    data: Literal["published", "ours"]
    """Tasks: the paper's, refused if they are missing, or our own."""

    published: dict[str, str] = Field(default_factory=dict)
    """Gyms whose tasks come from another project's folder of the published data than UserRL's, such as tau: tau-bench."""

    setup: dict[str, GymSetup] = Field(default_factory=dict)
    """Tasks and settings of single gyms."""

    user: User
    """The user in all gyms."""

    prompts: Prompts = "ours"
    """Prompts of agent, users and judges: ours, or the released code's, read from the person's copy."""

    horizon: Turns
    """Maximum agent turns."""

    temperature: NonNegativeFloat
    """Sampling temperature; 0 is greedy."""

    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Nucleus of sampling, if the temperature is above 0."""

    max_tokens: PositiveInt | None = None
    """Maximum tokens of a reply; null: the checkpoint's value from training. A model from scratch always keeps its own."""

    tool_choice: Literal["auto", "required"] = "auto"
    """Whether a served model may write without a call."""

    protocols: tuple[Protocol, ...] = ("interact",)
    """Protocols of a served model: the one interact tool, or each gym's native tools and plain words."""

    tasks: PositiveInt | None = None
    """Test tasks per gym; null: all."""

    total: PositiveInt | None = None
    """Test tasks in all, shared equally among the gyms."""

    attempts: PositiveInt = 1
    """Trajectories per task."""

    turns: tuple[Turns, ...] = ()
    """Horizons evaluated one after the other, instead of the one horizon."""

    metrics: tuple[Metric, ...] = ("score",)
    """Metrics to show."""

    categories: bool = False
    """Whether every category of a gym's tasks (their tier) is also shown."""

    plays: str | None = None
    """The suite whose conversations it measures. The two suites share conversations."""

    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Changes by name; each names its source."""

    @model_validator(mode="after")
    def _cited(self) -> Suite:
        set_keys = {key for key in self.model_fields_set if key not in _ABOUT and getattr(self, key) is not None}
        missing = sorted(set_keys - {key.partition(".")[0] for key in self.sources})
        if missing:
            raise ConfigError(
                "recipe.missing_key", f"{missing[0]} has no source; name its section under sources, or ours"
            )
        return self

    @property
    def label(self) -> str:
        """Name and variants, as they are written."""
        return f"{self.name}:{self.variant}" if self.variant else self.name

    @property
    def played_as(self) -> str:
        """Return the name of the suite that its conversations are stored under."""
        return (f"{self.plays}:{self.variant}" if self.variant else self.plays) if self.plays else self.label


def suite_named(label: str) -> bool:
    """Return whether a label names a suite, with or without a variant."""
    return label.partition(":")[0] in suite_names()


def load_suite(label: str) -> Suite:
    """Load a suite with the variants in its name. Raises ConfigError for unknown ones."""
    name, _, variants = label.partition(":")
    values: dict[str, Any] = dict(read(find(name, "suite")))
    where = f"suite '{name}'"
    variants_by_name = {
        str(variant): _checked(block_of(change, where, f"variants.{variant}"), f"{where}, variants.{variant}")
        for variant, change in block_of(values.get("variants"), where, "variants").items()
    }
    values = _checked(values, where)
    for variant in filter(None, variants.split("+")):
        if variant not in variants_by_name:
            raise ConfigError(
                "argument.unknown_value",
                f"Suite '{name}' has no variant '{variant}'{nearest(variant, variants_by_name)}. It has "
                f"{', '.join(variants_by_name) or 'none'}.",
            )
        values = _laid_over(values, variants_by_name[variant])
    return validated(Suite, {"name": name, **values, "variant": variants}, f"suite '{label}'")


def _checked(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a suite's values, or a variant's, with the mappings that are merged. Raises ConfigError where one is none."""
    if "variant" in values:
        sentence = f"{where[0].upper()}{where[1:]}: remove the key 'variant'. A variant is named as NAME:VARIANT."
        raise ConfigError("recipe.unknown_key", sentence)
    setup = {
        gym: block_of(block, where, f"setup.{gym}")
        for gym, block in block_of(values.get("setup"), where, "setup").items()
    }
    merged = {"sources": block_of(values.get("sources"), where, "sources"), "setup": setup}
    return {**values, **{key: block for key, block in merged.items() if key in values}}


def _laid_over(values: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the suite's values by a variant's. The settings of a gym and the sources are merged."""
    change = dict(change)
    source = str(change.pop("source", "ours"))
    cited = {**values.get("sources", {}), **{key: source for key in change if key != "sources"}}
    merged = {**values, **change, "sources": {**cited, **change.get("sources", {})}}
    if "setup" in change:
        before = values.get("setup", {})
        merged["setup"] = {
            **before,
            **{gym: _merged(before.get(gym, {}), setup) for gym, setup in change["setup"].items()},
        }
    return merged


def _merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    blocks = {
        key: {**before[key], **value}
        for key, value in after.items()
        if isinstance(before.get(key), Mapping) and isinstance(value, Mapping)
    }
    return {**before, **after, **blocks}
