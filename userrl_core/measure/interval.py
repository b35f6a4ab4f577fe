"""An estimate with its interval, and the two ways in which most of them are made."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between its limits.

    units: how many independent units it rests on (tasks, or seeds). method: how the limits were made.
    """

    estimate: float
    low: float
    high: float
    units: int
    method: str

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


def t_interval(values_M: np.ndarray, level: float = 0.95) -> Interval:
    """Student's t over independent values; the limits are infinite for a single one. Raises ValueError for none."""
    if values_M.size == 0:
        raise ValueError("An interval needs at least one value.")
    mean = float(values_M.mean())
    if values_M.size == 1:
        return Interval(mean, -math.inf, math.inf, 1, "t")
    half = float(stats.t.ppf((1 + level) / 2, values_M.size - 1) * values_M.std(ddof=1) / math.sqrt(values_M.size))
    return Interval(mean, mean - half, mean + half, int(values_M.size), "t")


def share_interval(count: int, of: int, level: float = 0.95) -> Interval:
    """Clopper and Pearson's exact limits of a share, such as that of collapsed seeds."""
    found = stats.binomtest(count, of).proportion_ci(confidence_level=level, method="exact")
    return Interval(count / of, float(found.low), float(found.high), of, "Clopper-Pearson")
