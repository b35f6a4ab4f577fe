"""Claims: arms that differ in one thing, and one primary contrast with its direction.

A claim is a YAML file in this folder, or a person's own. Everything in it is fixed before its first arm starts: its hash is
registered then (`userrl.claims.register`). A claim that is changed later is exploratory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from curricula.load import load
from curricula.recipe import Recipe
from curricula.schedule import Turns
from curricula.validation import validated
from curricula.yaml_files import claim_names, find, read, stem
from userrl_core.errors import ConfigError
from userrl_core.seeding import content_hash
from userrl_core.settings import FolderName, Settings

__all__ = ["CHECKS", "Arm", "Claim", "claim_names", "load_arm", "load_claim"]

EVALUATIONS = 3
"""Number of evaluations at the end of training whose mean is the endpoint."""

CHECKS: Mapping[str, str] = {
    "half-rate": "at half the learning rate",
    "double-rate": "at twice the learning rate",
    "second-family": "on the second family",
    "terminal-reward": "with a reward at the end alone",
    "follow-up": "on fresh seeds",
    "language-model": "with a pretrained language model",
}
"""Checks of a verdict. ``r2g-above-sum.half-rate`` is the claim r2g-above-sum with that one thing changed: a claim with a hash of
its own. The learning rates take 6 seeds. Every decided verdict gets a follow-up, whatever its direction. AgentGym-RL's environments
pay at the end alone. With the language model the profile is laptop-lm: its wordings, rewards, rates and sizes differ as well."""

_RATES = {"half-rate": 0.5, "double-rate": 2.0}
_REWARD = "gyms.errand.config.reward"
_FRESH = 100
"""Distance of a follow-up's seeds from the claim's."""

_LANGUAGE_MODEL: Mapping[str, Any] = {"profile": "laptop-lm", "tokens": 100_000, "every": 2, "test_tasks": 90}
"""Changes of a check with the language model, whose runs are slow: 24 steps, three evaluations in their last fifth."""

_LATER = ("interval", "test_tasks", "pinned", "published")
"""Fields that claims did not have at first. They enter the hash where they differ from their default; `pinned` and `published`
never do."""

Metric = Literal["score", "early", "collapsed", "cpu_seconds", "tokens", "time_weighted"]


class Arm(Settings):
    """One of the ways of training that are compared."""

    recipe: str | None = None
    """Recipe by name or file; null: the claim's."""

    overrides: dict[str, Any] = Field(default_factory=dict)
    """Dotted keys into the recipe that this arm alone has; they replace those that all arms share."""


class Contrast(Settings):
    """The claim about two arms: one has more of the metric than the other."""

    more: str
    """The arm that has more, by the claim."""

    than: str
    """The arm that has less, by the claim."""


class Claim(Settings):
    """One small experiment, written down before it is run."""

    name: FolderName
    """Name of the claim."""

    kind: Literal["claim", "mechanism check", "open question"]
    """A paper's claim, a check of why something happens, or a question of ours."""

    paper: str
    """Paper, section and table or figure; or ours."""

    text: str
    """The claim in a sentence."""

    arms: dict[str, Arm] = Field(min_length=2)
    """The arms by name."""

    contrast: Contrast
    """The primary contrast and its direction. Other differences are shown without a verdict."""

    metric: Metric = "score"
    """The measured quantity of each run. score: mean test score of the last three evaluations within the last fifth
    of the budget. early: validation score at a sixth of the budget. collapsed: whether the score fell at the horizon
    the run was trained at. tokens: the logarithm of the tokens of training until validation stays at or above the
    target (of the whole training if it never does). cpu_seconds: the same of the processor time until validation
    first reaches the target; it depends on the machine. time_weighted: mean of r_t / t summed over the turns, at the
    last step.
    """

    target: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Validation score that the metrics tokens and cpu_seconds wait for."""

    interval: Literal["welch", "paired"] = "welch"
    """The primary interval of scores, named beforehand: Welch's, or of paired seed differences. Both are shown."""

    test_tasks: Literal["all"] | PositiveInt | None = None
    """Test tasks of each evaluation: all of the family, or a number drawn by the seed; none: the profile's number."""

    published: dict[str, Any] = Field(default_factory=dict)
    """Fields of this file as they were when the published runs were registered. A home that holds such a registration continues
    it (`as_published`)."""

    horizon: Turns = 16
    """Maximum agent turns in validation and evaluation, and in training for arms without a schedule."""

    delta: PositiveFloat = 0.05
    """Smallest relevant difference, in units of the metric."""

    tokens: PositiveInt = 400_000
    """RL budget of each run in tokens, with openings and observations."""

    every: PositiveInt = 10
    """Training steps between validations and between checkpoints."""

    mix: dict[str, Annotated[float, Field(gt=0.0, allow_inf_nan=False)]] = Field(
        default_factory=lambda: {"errand": 1.0}
    )
    """Gyms and their shares of the tokens. A verdict is about these gyms alone."""

    recipe: str = "equalized-r2g"
    """Recipe of arms that name none."""

    profile: str = "laptop"
    """Profile with sizes and machine."""

    overrides: dict[str, Any] = Field(default_factory=dict)
    """Settings that all arms share: dotted keys into the recipe."""

    pinned: dict[str, Any] = Field(default_factory=dict)
    """Values that recipe and profile had when the claim was registered, and that they changed since: dotted keys. The hash has
    them in the arms' recipes alone, so that the claim keeps its hash and its meaning."""

    same_cold_start: bool = True
    """Whether the arms of a seed start from the same weights; false if the cold starts differ on purpose."""

    first_seed: PositiveInt = 101
    """The first seed. No result of these seeds was seen before."""

    @model_validator(mode="after")
    def _fits_together(self) -> Claim:
        missing = [arm for arm in (self.contrast.more, self.contrast.than) if arm not in self.arms]
        if missing or self.contrast.more == self.contrast.than:
            raise ConfigError("claim.bad_file", f"contrast needs two of the arms {', '.join(self.arms)}")
        if (self.metric in ("cpu_seconds", "tokens")) != (self.target is not None):
            raise ConfigError(
                "claim.bad_file", "metrics cpu_seconds and tokens need a target, and no other metric has one"
            )
        return self

    @property
    def family(self) -> str:
        """Return the gyms that a verdict is about."""
        return " and ".join(self.mix)

    def overrides_of(self, arm: Arm) -> dict[str, Any]:
        """Return all settings of an arm except its recipe and profile."""
        shared = {
            "stages": [{"tokens": self.tokens, "mix": self.mix, "weigh": "tokens"}],
            "schedule": {"kind": "fixed", "turns": self.horizon},
            "demonstrations.horizon": 8,  # the laptop's own; else it would follow an arm's schedule
            "evaluate.horizon": self.horizon,
            "evaluate.gyms": list(self.mix),
            "evaluate.every": self.every,
            "evaluate.last": EVALUATIONS,
            "evaluate.draw": "seed",
        }
        if self.test_tasks is not None:
            shared["evaluate.tasks"] = None if self.test_tasks == "all" else self.test_tasks
        return {**shared, **self.pinned, **self.overrides, **arm.overrides}

    def recipe_of(self, arm: Arm) -> Recipe:
        """Return the arm's resolved recipe. Raises ConfigError where the recipe refuses it."""
        return load(arm.recipe or self.recipe, profile=self.profile, overrides=self.overrides_of(arm))

    @cached_property
    def hash(self) -> str:
        """The hash of everything in the file and of every arm's resolved recipe."""
        # Former hashes: a claim that was registered before citations left the identity must keep its registration.
        recipes = {name: self.recipe_of(arm).former_hash for name, arm in self.arms.items()}
        values = self.model_dump(mode="json")
        for name in _LATER:
            if name in ("pinned", "published") or values[name] == type(self).model_fields[name].default:
                del values[name]
        return content_hash({"claim": values, "recipes": recipes})[:16]

    @cached_property
    def as_published(self) -> Claim:
        """The claim as it was when the published runs were registered; the claim itself where nothing was changed."""
        return self.model_copy(update={**self.published, "published": {}}) if self.published else self

    def with_tokens(self, tokens: int) -> Claim:
        """Return the claim with another budget; validations, and schedules that count steps, are scaled with it."""
        share = tokens / self.tokens
        arms = {
            name: arm.model_copy(update={"overrides": _scaled(arm.overrides, share)}) for name, arm in self.arms.items()
        }
        every = max(1, min(self.every, round(self.every * share)))
        return self.model_copy(update={"tokens": tokens, "every": every, "arms": arms})

    def check(self, which: str) -> Claim:
        """Return one of `CHECKS`: the two arms of the contrast with one thing changed. Raises ConfigError if the
        claim cannot have it.
        """
        arms = {name: self.arms[name] for name in (self.contrast.more, self.contrast.than)}
        keys = [key for overrides in (self.overrides, *(arm.overrides for arm in arms.values())) for key in overrides]
        changed: dict[str, Any] = {}
        if which in _RATES:
            for name, arm in arms.items():
                rate = self.recipe_of(arm).algorithm.lr * _RATES[which]
                arms[name] = arm.model_copy(update={"overrides": {**arm.overrides, "algorithm.lr": rate}})
        elif which == "terminal-reward":
            if [*self.mix] != ["errand"] or _REWARD in keys:
                raise ConfigError(
                    "claim.bad_check",
                    f"Claim '{self.name}' has no form with a reward at the end alone. Claims on errand have one.",
                )
            changed["overrides"] = {**self.overrides, _REWARD: "terminal"}
        elif which == "second-family":
            if len(self.mix) > 1 or any(key.startswith(("gyms.", "stages")) for key in keys):
                raise ConfigError(
                    "claim.bad_check", f"Claim '{self.name}' is about {self.family} itself and has no second family."
                )
            changed["mix"] = {"errand": 1.0} if "wish" in self.mix else {"wish": 1.0}
        elif which == "follow-up":
            changed["first_seed"] = self.first_seed + _FRESH
        elif which == "language-model":
            changes_model = any(key.startswith("model.") for key in keys)
            taught = any(key.startswith("demonstrations.") for arm in arms.values() for key in arm.overrides)
            if self.profile != "laptop" or not {*self.mix} <= {"errand", "wish"} or changes_model or taught:
                raise ConfigError(
                    "claim.bad_check",
                    f"Claim '{self.name}' has no form with a language model. Claims on errand and wish have one, unless they "
                    "set keys of model, or an arm sets keys of demonstrations.",
                )
            scaled = self.with_tokens(_LANGUAGE_MODEL["tokens"])  # with schedules that count steps
            arms = {name: scaled.arms[name] for name in arms}
            # The profile's number format depends on the CPU, and a claim has one hash on every machine. With AMX, bfloat16 is
            # the faster one.
            sizes = {"algorithm.batch_tokens": 4096, "evaluate.validation_tasks": 24, "model.dtype": "bfloat16"}
            changed["overrides"] = {**sizes, **self.overrides}
            changed.update(_LANGUAGE_MODEL)
        return self.model_copy(update={"name": f"{self.name}.{which}", "arms": arms, **changed})


def load_claim(name: str | Path) -> Claim:
    """Load a claim by name or file, or one of its `CHECKS` (``name.half-rate``).

    Raises ConfigError for an unknown name or key and for arms that do not fit.
    """
    base, _, which = str(name).rpartition(".")
    if base and which in CHECKS:
        if base.rpartition(".")[2] in CHECKS:
            raise ConfigError(
                "claim.bad_check", f"'{name}' is a check of a check. A check changes one thing of a claim."
            )
        return load_claim(base).check(which)
    values = read(find(name, "claim"))
    return validated(Claim, {"name": stem(name), **values}, f"claim '{name}'")


def load_arm(path: str) -> tuple[str, Arm]:
    """Load a person's own arm from a YAML file with `recipe` and `overrides`; its name is the file's. Raises ConfigError."""
    return stem(Path(path)), validated(Arm, read(Path(path)), f"arm {path}")


def _scaled(overrides: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Scale what counts steps or tokens. Values of another shape stay, and are refused with the recipe."""
    scaled = dict(overrides)
    schedule, stages = overrides.get("schedule"), overrides.get("stages")
    if isinstance(schedule, Mapping) and _is_count(schedule.get("every")):
        scaled["schedule"] = {**schedule, "every": max(1, round(schedule["every"] * share))}
    if isinstance(stages, list):
        scaled["stages"] = [
            {**stage, "tokens": round(stage["tokens"] * share)}
            if isinstance(stage, Mapping) and _is_count(stage.get("tokens"))
            else stage
            for stage in stages
        ]
    return scaled


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
