"""Two optional reward terms from UserBench's discussion (section 6). Both are off by default.

They change rewards before credit is assigned, never the logged raw rewards, so curves stay comparable.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from userrl_core.records import Trajectory
from userrl_core.settings import Settings


class OptionalTerms(Settings):
    """Decay of late rewards, and a penalty for unsupported answers."""

    late_decay: float = Field(default=1.0, gt=0.0, le=1.0)
    """Positive rewards of turn t are multiplied by this to the power t - 1; 1 is off."""

    unsupported_penalty: float = Field(default=0.0, ge=0.0)
    """Penalty subtracted from a rewarded answer that comes before enough preferences were elicited; 0 is off."""

    support: int = Field(default=1, ge=1)
    """Number of elicited preferences an answer needs to count as supported."""

    @property
    def active(self) -> bool:
        """Return True if any term is on."""
        return self.late_decay != 1.0 or self.unsupported_penalty != 0.0


def late_decay(rewards: Sequence[float | None], decay: float) -> list[float | None]:
    """Decay positive rewards by ``decay`` per turn after the first; null and negative ones are unchanged."""
    return [r if r is None or r <= 0 else r * decay**t for t, r in enumerate(rewards)]


def unsupported_penalty(
    rewards: Sequence[float | None],
    answers: Sequence[bool],
    elicited: Sequence[int],
    *,
    penalty: float,
    support: int = 1,
) -> list[float | None]:
    """Subtract ``penalty`` from every rewarded answer that comes before ``support`` preferences were elicited.

    answers: True for turns that are answers. elicited: number of preferences elicited in a turn; earlier turns count.
    """
    adjusted: list[float | None] = []
    elicited_before = 0
    for reward, is_answer, elicited_now in zip(rewards, answers, elicited, strict=True):
        unsupported = is_answer and elicited_before < support
        adjusted.append(reward - penalty if unsupported and reward is not None and reward > 0 else reward)
        elicited_before += elicited_now
    return adjusted


def adjusted_rewards(trajectory: Trajectory, terms: OptionalTerms) -> list[float | None]:
    """Return the rewards for credit assignment: the judge's if there is one, else the gym's, changed by the recipe's terms.

    A turn's elicited preferences are read from ``info["elicited"]``: a word (one preference), a number, or a list.
    """
    judged = trajectory.judgement
    rewards: list[float | None] = list(trajectory.rewards if judged is None else judged.rewards)
    if terms.unsupported_penalty:
        rewards = unsupported_penalty(
            rewards,
            [turn.choice == "answer" for turn in trajectory.turns],
            [_count(turn.info.get("elicited", 0)) for turn in trajectory.turns],
            penalty=terms.unsupported_penalty,
            support=terms.support,
        )
    return late_decay(rewards, terms.late_decay) if terms.late_decay != 1.0 else rewards


def _count(elicited: object) -> int:
    if isinstance(elicited, str):
        return int(bool(elicited))
    if isinstance(elicited, (list, tuple, set)):
        return len(elicited)
    return int(elicited) if isinstance(elicited, (int, float)) else 0
