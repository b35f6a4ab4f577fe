"""An estimate with its interval, and the ways in which most of them are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from userrl_core.number_format import with_limits


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
        return with_limits(self)


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


DRAWS = 1000
"""Resamplings of the tasks behind an interval."""


def resampled(values_MS: np.ndarray, of: Callable[[np.ndarray], np.ndarray], level: float = 0.95) -> Interval:
    """Return a statistic of sums over tasks, with percentile limits from tasks drawn anew; M tasks, S sums.

    of: from sums [..., S] to the statistic [...], nan where it is not defined.
    """
    rng = np.random.default_rng(0)
    tasks = len(values_MS)
    weights_DM = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=DRAWS)
    drawn_D = of(weights_DM @ values_MS)
    drawn_D = drawn_D[~np.isnan(drawn_D)]
    low, high = np.quantile(drawn_D, [(1 - level) / 2, (1 + level) / 2]) if drawn_D.size else (np.nan, np.nan)
    return Interval(float(of(values_MS.sum(axis=0))), float(low), float(high), tasks, "tasks resampled")
