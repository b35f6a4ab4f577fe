"""Credit of a group's turns under other settings than the run's own (UserRL section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from userrl_core.rewards import CreditConfig, Credits, assign_credit, measure_bias
from userrl_core.rewards.meanings import FORM_MEANINGS
from warehouse.query.browse import StoredConversation

SHAPINGS = ("naive", "equalized", "r2g", "em")
SCORES = ("sum", "mean", "r2g")


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """The credit settings that a reader may change. All others stay the run's own."""

    shaping: Any
    score: Any
    gamma: float

    @classmethod
    def of(cls, run: dict[str, Any]) -> CreditSettings:
        """Return the run's own settings, completed by the defaults."""
        default = CreditConfig()
        shaping = run.get("shaping") if run.get("shaping") in SHAPINGS else default.shaping
        score = run.get("score") if run.get("score") in SCORES else default.score
        gamma = run.get("gamma")
        return cls(shaping, score, float(default.gamma if gamma is None else gamma))

    @classmethod
    def logged(cls, run: dict[str, Any]) -> CreditSettings:
        """Return the settings of the logged credit. They may include a package's shaping, which cannot be chosen here."""
        settings = cls.of(run)
        return replace(settings, shaping=run.get("shaping") or settings.shaping)


@dataclass(frozen=True, slots=True)
class Credit:
    """Shaped credit and advantage for each turn of one trajectory."""

    shaped: list[float]
    advantage: list[float]


def rescored(members: Sequence[StoredConversation], run: dict[str, Any], settings: CreditSettings) -> list[Credit]:
    """Compute the credit of each member of a group. Raises ConfigError for settings that its rewards do not allow."""
    credits = _assigned(members, run, settings)
    return [
        Credit([float(s) for s in shaped], [float(a) for a in advantage])
        for shaped, advantage in zip(credits.shaped, credits.advantages, strict=True)
    ]


def mean_advantage_bias(members: Sequence[StoredConversation], run: dict[str, Any]) -> float | None:
    """Return the mean-advantage bias of a group, from the logged advantages (docs/rewards.md). None if none were logged."""
    logged = [[turn["advantage"] or 0.0 for turn in member.turns] for member in members]
    if not any(a for row in logged for a in row):
        return None
    credits = _assigned(
        members, run, CreditSettings("equalized", "sum", 1.0)
    )  # only tells which trajectories scored below the mean, which is not used here
    return measure_bias(logged, [0] * len(members), credits, _tokens(members)).group


def advantage_meaning(run: dict[str, Any], settings: CreditSettings) -> str:
    """Explain what an advantage means under these settings and the run's form."""
    if settings.shaping == "equalized":
        return (
            f"equalized: the trajectory's return ({settings.score}) less the group's mean, in standard deviations, equal in "
            "every turn; it averages 0 over the group"
        )
    form = run.get("form") or "released"
    return f"{settings.shaping} / {settings.score} in form {form}: {FORM_MEANINGS[form]}"


def _tokens(members: Sequence[StoredConversation]) -> list[list[int]]:
    return [[max(1, turn["completion_tokens"] or 1) for turn in member.turns] for member in members]


def _assigned(members: Sequence[StoredConversation], run: dict[str, Any], settings: CreditSettings) -> Credits:
    return assign_credit(
        [[turn["reward"] for turn in member.turns] for member in members],
        [0] * len(members),
        CreditConfig.of(
            shaping=settings.shaping,
            score=settings.score,
            gamma=settings.gamma,
            k=run.get("k") or 2.0,
            form=run.get("form") or "released",
            ddof=run.get("ddof") or 0,
        ),
        turn_tokens=_tokens(members),
        admitted=[bool(member.trajectory["admitted"]) for member in members],
    )
