"""The credit of a group's turns under other settings than those that it was trained with (UserRL section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from userrl_core.rewards import CreditConfig, assign_credit
from warehouse.query.browse import Conversation

SHAPINGS = ("naive", "equalized", "r2g", "em")
SCORES = ("sum", "mean", "r2g")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person may change; the rest stays the run's."""

    shaping: Any
    score: Any
    gamma: float

    @classmethod
    def of(cls, run: dict[str, Any]) -> Settings:
        """The run's own, or the defaults."""
        default = CreditConfig()
        shaping = run.get("shaping") if run.get("shaping") in SHAPINGS else default.shaping
        score = run.get("score") if run.get("score") in SCORES else default.score
        gamma = run.get("gamma")
        return cls(shaping, score, float(default.gamma if gamma is None else gamma))


@dataclass(frozen=True, slots=True)
class Credit:
    """Per turn of one trajectory, shaped credit and advantage."""

    shaped: list[float]
    advantage: list[float]


def rescored(members: Sequence[Conversation], run: dict[str, Any], settings: Settings) -> list[Credit]:
    """Credit of each member of a group. Raises ConfigError for settings that its rewards do not allow."""
    given = assign_credit(
        [[turn["reward"] for turn in member.turns] for member in members],
        [0] * len(members),
        turn_tokens=[[max(1, turn["completion_tokens"] or 1) for turn in member.turns] for member in members],
        shaping=settings.shaping,
        score=settings.score,
        gamma=settings.gamma,
        k=run.get("k") or 2.0,
        form=run.get("form") or "released",
        ddof=run.get("ddof") or 0,
        admitted=[bool(member.trajectory["admitted"]) for member in members],
    )
    return [
        Credit([float(s) for s in shaped], [float(a) for a in advantage])
        for shaped, advantage in zip(given.shaped, given.advantages, strict=True)
    ]
