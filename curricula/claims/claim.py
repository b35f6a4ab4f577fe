"""A claim: arms that differ in one thing, one primary contrast with its direction, and what would count for or against it.

A claim is YAML under this folder, or a person's own file. Everything in it is fixed before its first arm starts: its hash is
registered then (`flows.reproduce`), and what is changed later is exploratory.
"""

from __future__ import annotations

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
from userrl_core.settings import Settings

__all__ = ["CHECKS", "Arm", "Claim", "claim_names", "load_arm", "load_claim"]

EVALUATIONS = 3
"""Evaluations at the end of training whose mean is the endpoint."""

CHECKS: Mapping[str, str] = {
    "half-rate": "at half the learning rate",
    "double-rate": "at twice the learning rate",
    "second-family": "on the second family",
    "terminal-reward": "with a reward at the end alone",
    "follow-up": "on fresh seeds",
}
"""What a verdict is held against: ``r2g-above-sum.half-rate`` is the claim r2g-above-sum with that one thing changed, a claim of
its own with its own hash. The rates want 6 seeds; a verdict against its paper gets a follow-up; AgentGym-RL's environments pay at
the end alone."""

_RATES = {"half-rate": 0.5, "double-rate": 2.0}
_REWARD = "gyms.errand.config.reward"
_FRESH = 100
"""How far a follow-up's seeds lie from the claim's."""

Metric = Literal["score", "early", "collapsed", "cpu_seconds", "time_weighted"]


class Arm(Settings):
    """One way of training among those that are compared."""

    recipe: str | None = None
    """Its recipe, by name or file; none: the claim's."""

    overrides: dict[str, Any] = Field(default_factory=dict)
    """What it has of its own: dotted keys into the recipe, laid over those that all arms share."""


class Contrast(Settings):
    """What is claimed of two arms: the one has more of the metric than the other."""

    more: str
    """The arm that is said to have more."""

    than: str
    """The arm that is said to have less."""


class Claim(Settings):
    """One small experiment, as it was written down beforehand."""

    name: str
    """What it is called."""

    kind: Literal["claim", "mechanism check", "open question"]
    """A paper's claim; a check of why something happens; a question of ours."""

    paper: str
    """Paper, section and table or figure; or ours."""

    text: str
    """What is claimed, in a sentence."""

    arms: dict[str, Arm] = Field(min_length=2)
    """What is compared, by name."""

    contrast: Contrast
    """The primary contrast and its direction; what else the arms show is shown without a verdict."""

    metric: Metric = "score"
    """What is measured of each run. score: mean test score of the last three evaluations within the last fifth of the budget.
    early: validation score at a sixth of the budget. collapsed: 1 where the last step lies far below the best one, else 0.
    cpu_seconds: the logarithm of the processor time of training until validation first reaches the target (of all of it,
    where it never does). time_weighted: mean of r_t / t summed over the turns, at the last step."""

    target: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Validation score that cpu_seconds waits for."""

    horizon: Turns = 16
    """Most agent turns of validation and evaluation, and of training where an arm has no schedule of its own."""

    delta: PositiveFloat = 0.05
    """The least difference that matters, in units of the metric."""

    tokens: PositiveInt = 400_000
    """Budget of RL of each run: tokens, openings and observations included."""

    every: PositiveInt = 10
    """Training steps between two validations, and between two checkpoints."""

    mix: dict[str, Annotated[float, Field(gt=0.0, allow_inf_nan=False)]] = Field(
        default_factory=lambda: {"errand": 1.0}
    )
    """Gyms and their shares of the tokens: the family that a verdict is about."""

    recipe: str = "equalized-r2g"
    """The arms' recipe, where they name none."""

    profile: str = "laptop"
    """Sizes and machine."""

    overrides: dict[str, Any] = Field(default_factory=dict)
    """Settings that all arms share: dotted keys into the recipe."""

    same_cold_start: bool = True
    """Whether the arms of a seed begin with the same weights; false where the cold start is what differs."""

    first_seed: PositiveInt = 101
    """The first of its seeds, none of which was looked at before."""

    @model_validator(mode="after")
    def _fits_together(self) -> Claim:
        missing = [arm for arm in (self.contrast.more, self.contrast.than) if arm not in self.arms]
        if missing or self.contrast.more == self.contrast.than:
            raise ValueError(f"contrast needs two of the arms {', '.join(self.arms)}")
        if (self.metric == "cpu_seconds") != (self.target is not None):
            raise ValueError("metric cpu_seconds needs a target, and no other metric has one")
        return self

    @property
    def family(self) -> str:
        """What a verdict is about."""
        return " and ".join(self.mix)

    def overrides_of(self, arm: Arm) -> dict[str, Any]:
        """Everything that an arm is trained with beside its recipe and profile."""
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
        return {**shared, **self.overrides, **arm.overrides}

    def recipe_of(self, arm: Arm) -> Recipe:
        """The arm's resolved recipe. Raises ConfigError where the recipe refuses it."""
        return load(arm.recipe or self.recipe, profile=self.profile, overrides=self.overrides_of(arm))

    @cached_property
    def hash(self) -> str:
        """Of everything in the file and of every arm's resolved recipe."""
        # Former hashes: a claim that was registered before citations left the identity must keep its registration.
        recipes = {name: self.recipe_of(arm).former_hash for name, arm in self.arms.items()}
        return content_hash({"claim": self.model_dump(mode="json"), "recipes": recipes})[:16]

    def with_tokens(self, tokens: int) -> Claim:
        """The same with another budget; validations, and schedules that count steps, are scaled with it."""
        share = tokens / self.tokens
        arms = {
            name: arm.model_copy(update={"overrides": _scaled(arm.overrides, share)}) for name, arm in self.arms.items()
        }
        every = max(1, min(self.every, round(self.every * share)))
        return self.model_copy(update={"tokens": tokens, "every": every, "arms": arms})

    def check(self, which: str) -> Claim:
        """One of `CHECKS`: the two arms of the primary contrast with one thing changed. Raises ConfigError where it has none."""
        arms = {name: self.arms[name] for name in (self.contrast.more, self.contrast.than)}
        keys = [key for each in (self.overrides, *(arm.overrides for arm in arms.values())) for key in each]
        changed: dict[str, Any] = {}
        if which in _RATES:
            for name, arm in arms.items():
                rate = self.recipe_of(arm).algorithm.lr * _RATES[which]
                arms[name] = arm.model_copy(update={"overrides": {**arm.overrides, "algorithm.lr": rate}})
        elif which == "terminal-reward":
            if [*self.mix] != ["errand"] or _REWARD in keys:
                raise ConfigError(
                    f"Claim '{self.name}' has no form with a reward at the end alone; claims on errand have."
                )
            changed["overrides"] = {**self.overrides, _REWARD: "terminal"}
        elif which == "second-family":
            if len(self.mix) > 1 or any(key.startswith(("gyms.", "stages")) for key in keys):
                raise ConfigError(f"Claim '{self.name}' is about {self.family} itself; it has no second family.")
            changed["mix"] = {"errand": 1.0} if "wish" in self.mix else {"wish": 1.0}
        elif which == "follow-up":
            changed["first_seed"] = self.first_seed + _FRESH
        return self.model_copy(update={"name": f"{self.name}.{which}", "arms": arms, **changed})


def load_claim(name: str | Path) -> Claim:
    """A claim by name or file, or one of its `CHECKS` (``name.half-rate``).

    Raises ConfigError, in one sentence, for an unknown name or key and for arms that do not fit.
    """
    base, _, which = str(name).rpartition(".")
    if base and which in CHECKS:
        if base.rpartition(".")[2] in CHECKS:
            raise ConfigError(f"'{name}' is a check of a check; a check changes one thing of a claim.")
        return load_claim(base).check(which)
    values = read(find(name, "claim"))
    return validated(Claim, {"name": stem(name), **values}, f"claim '{name}'")


def load_arm(path: str) -> tuple[str, Arm]:
    """A person's own arm from a YAML file with `recipe` and `overrides`; its name is the file's. Raises ConfigError."""
    if not Path(path).is_file():
        raise ConfigError(
            f"There is no arm file {path}; write one with recipe: and overrides:, as under arms of a claim."
        )
    return stem(Path(path)), validated(Arm, read(Path(path)), f"arm {path}")


def _scaled(overrides: Mapping[str, Any], share: float) -> dict[str, Any]:
    scaled = dict(overrides)
    schedule = overrides.get("schedule")
    if isinstance(schedule, Mapping) and "every" in schedule:
        scaled["schedule"] = {**schedule, "every": max(1, round(schedule["every"] * share))}
    if "stages" in overrides:
        scaled["stages"] = [
            {**stage, "tokens": round(stage["tokens"] * share)} if "tokens" in stage else stage
            for stage in overrides["stages"]
        ]
    return scaled
