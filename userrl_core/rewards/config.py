"""The settings of credit assignment: the ``credit`` block of a recipe."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, NonNegativeInt, ValidationError

from userrl_core.errors import ConfigError
from userrl_core.rewards.installed import checked
from userrl_core.rewards.optional import OptionalTerms
from userrl_core.settings import Settings

Shaping = Literal["naive", "equalized", "r2g", "em"]
"""The papers' rules; packages may add others (`installed.py`)."""
Scoring = Literal["sum", "mean", "r2g"]
Form = Literal["released", "paper", "centred"]
Rounding = Literal["none", "released"]
Filter = Literal["drop", "resample", "keep"]


class CreditConfig(Settings):
    """Shaping, scoring and form of credit (UserRL section 3), and the filter of groups without a signal."""

    shaping: Annotated[str, AfterValidator(lambda name: checked(name, get_args(Shaping)))] = "equalized"
    """Turn-level credit: naive (the raw reward), equalized (1 for every turn), r2g (discounted reward-to-go), em
    (rewards in [0, 1] mapped into [0.5, 1]), or the rule of an installed package (entry point userrl.credits).
    """

    score: Scoring = "r2g"
    """Trajectory score within a group: sum (of rewards), mean (over turns; named Sum in the released code) or r2g
    (discounted by gamma per turn).
    """

    gamma: float = Field(default=0.8, ge=0.0, le=1.0)
    """Discount per turn, in [0, 1]; used by r2g, as shaping and as score."""

    k: float = Field(default=2.0, gt=0.0)
    """Curvature of the em mapping, above 0."""

    form: Form = "released"
    """The step from shaped credit to advantages: released (credit redistributes z over the trajectory's tokens),
    paper (credit normalised by the group's mean and deviation) or centred (ours: paper minus the group's mean
    advantage).
    """

    ddof: Literal[0, 1] = 0
    """0: population standard deviation (the papers); 1: sample standard deviation (the released code)."""

    rounding: Rounding = "none"
    """released: mean scores and em credit are rounded to four digits, as in the released code; none: never rounded."""

    filter: Filter = "drop"
    """Treatment of groups with equal scores: drop (removed from the batch), resample (replaced by newly drawn tasks)
    or keep (kept with advantage 0, and counted in the means).
    """

    resample_limit: NonNegativeInt = 3
    """Maximum additional draws per step with filter resample; groups still without a signal are dropped."""

    terms: OptionalTerms = OptionalTerms()
    """Optional reward terms (UserBench section 6), all off."""

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Return the settings. Raises ConfigError, with the allowed values, for an invalid one."""
        try:
            return cls(**settings)
        except ValidationError as error:
            first = error.errors()[0]
            refusal = first.get("ctx", {}).get("error")
            if isinstance(refusal, ConfigError):
                raise refusal from None
            key, allowed = str(first["loc"][0]), first["msg"].replace("'", "")
            sentence = f"credit.{key} {first['input']!r} is not possible. {allowed}."
            if key in ("score", "form"):
                raise ConfigError("credit.unknown_rule", sentence) from None
            raise ConfigError("credit.bad_setting", sentence) from None
