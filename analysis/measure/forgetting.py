"""Detection of forgetting: a gym where a checkpoint scores below an earlier checkpoint of the same run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MIN_FALL = 0.05
"""Smallest fall that counts."""


@dataclass(frozen=True, slots=True)
class MeanScore:
    """A mean score with its standard error over tasks. n: number of trajectories."""

    score: float
    stderr: float
    n: int = 1


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A gym that an actor solves less often than an earlier one did. now, before: their scores."""

    gym: str
    actor: str
    now: MeanScore
    earlier: str
    before: MeanScore


def forgotten(
    actor: str, now: Mapping[str, MeanScore], earlier: Mapping[str, Mapping[str, MeanScore]]
) -> list[Forgotten]:
    """Return the gyms where an actor is worse than the best earlier actor, by more than two standard errors.

    now: the actor's scores by gym. earlier: the earlier actors' scores, by actor and gym.
    """
    lost = []
    for gym, score in now.items():
        before = {name: by_gym[gym] for name, by_gym in earlier.items() if gym in by_gym}
        if not before:
            continue
        best = max(before, key=lambda name: before[name].score)
        fall, error = before[best].score - score.score, math.hypot(score.stderr, before[best].stderr)
        if fall > max(MIN_FALL, 2 * error):
            lost.append(Forgotten(gym, actor, score, best, before[best]))
    return lost


def pooled(scores: Sequence[MeanScore]) -> MeanScore | None:
    """Return the mean over all trajectories of several gyms, or None without a trajectory."""
    n = sum(score.n for score in scores)
    if not n:
        return None
    mean = sum(score.score * score.n for score in scores) / n
    return MeanScore(mean, sum((score.stderr * score.n / n) ** 2 for score in scores) ** 0.5, n)
