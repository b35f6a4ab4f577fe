"""An estimate with its interval, and the formulas for most intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy

from userrl_core.number_format import with_limits

MIN_SEEDS = 4
"""Minimum seeds for an interval. With fewer seeds, their values are shown instead."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate between its limits.

    units: number of independent units (tasks, or seeds). method: the method of the limits. values: shown instead of
    limits if there are fewer than `MIN_SEEDS`; the limits are nan then.
    """

    estimate: float
    low: float
    high: float
    units: int
    method: str
    values: tuple[float, ...] = ()

    def __str__(self) -> str:
        return with_limits(self)

    def as_json(self) -> dict[str, float | None]:
        """Return the estimate and its limits. JSON has no number for a limit that is unknown or infinite."""
        return {"estimate": finite(self.estimate), "low": finite(self.low), "high": finite(self.high)}


def finite(value: float) -> float | None:
    """Return a number for JSON: null for one that is not finite."""
    return value if math.isfinite(value) else None


def student(p: float, freedom: float) -> float:
    """Return the p quantile of Student's t. It is the number of ``scipy.stats.t.ppf``, which takes half a second to import."""
    return float(scipy.special.stdtrit(freedom, p))


def t_interval(values_M: np.ndarray, level: float = 0.95) -> Interval:
    """Return Student's t limits over independent values; infinite limits for a single value. Raises ValueError
    without values.
    """
    if values_M.size == 0:
        raise ValueError("An interval needs at least one value.")
    mean = float(values_M.mean())
    if values_M.size == 1:
        return Interval(mean, -math.inf, math.inf, 1, "t")
    half = float(student((1 + level) / 2, values_M.size - 1) * values_M.std(ddof=1) / math.sqrt(values_M.size))
    return Interval(mean, mean - half, mean + half, int(values_M.size), "t")


def score_interval(values_S: np.ndarray, level: float = 0.95) -> Interval:
    """Return the mean of one score per seed, with t limits that stay inside [0, 1].

    Limits beyond the scale are clipped. A mean score cannot be outside the scale, so the coverage is the same.
    """
    return _few(values_S) or _cut(t_interval(values_S, level), 0.0)


def seed_difference_interval(values_S: np.ndarray, level: float = 0.95) -> Interval:
    """Return the mean of one score difference per seed, with t limits that stay inside [-1, 1]."""
    return _few(values_S) or _cut(t_interval(values_S, level), -1.0)


def _few(values_S: np.ndarray) -> Interval | None:
    """Return the values without limits if there are fewer than `MIN_SEEDS`. Raises ValueError without values."""
    if values_S.size == 0:
        raise ValueError("An interval needs at least one value.")
    if values_S.size >= MIN_SEEDS:
        return None
    values = tuple(float(value) for value in values_S)
    return Interval(float(values_S.mean()), math.nan, math.nan, int(values_S.size), "values", values)


def _cut(interval: Interval, lower: float) -> Interval:
    return replace(interval, low=max(interval.low, lower), high=min(interval.high, 1.0))


def welch(a_S: np.ndarray, b_S: np.ndarray, level: float = 0.95) -> Interval:
    """Return the difference of two means, a minus b, with Welch's limits. Needs two values each."""
    parts = [float(values.var(ddof=1)) / values.size for values in (a_S, b_S)]
    error, estimate = math.sqrt(sum(parts)), float(a_S.mean() - b_S.mean())
    if error == 0:
        return Interval(estimate, estimate, estimate, int(min(a_S.size, b_S.size)), "Welch")
    freedom = sum(parts) ** 2 / sum(part**2 / (values.size - 1) for part, values in zip(parts, (a_S, b_S), strict=True))
    half = student((1 + level) / 2, freedom) * error
    return Interval(estimate, estimate - half, estimate + half, int(min(a_S.size, b_S.size)), "Welch")


def newcombe(a: tuple[int, int], b: tuple[int, int], level: float = 0.95) -> Interval:
    """Return the difference of two shares, a minus b, with Newcombe's hybrid score limits (1998, method 10).

    a, b: a count and a total each.
    """
    p, q = (count / of for count, of in (a, b))
    of_p, of_q = (
        scipy.stats.binomtest(*pair).proportion_ci(confidence_level=level, method="wilson") for pair in (a, b)
    )
    low = p - q - math.hypot(p - of_p.low, of_q.high - q)
    high = p - q + math.hypot(of_p.high - p, q - of_q.low)
    return Interval(p - q, low, high, min(a[1], b[1]), "Newcombe")


def share_interval(count: int, of: int, level: float = 0.95) -> Interval:
    """Return a share, such as the share of collapsed seeds, with Clopper and Pearson's exact limits."""
    limits = scipy.stats.binomtest(count, of).proportion_ci(confidence_level=level, method="exact")
    return Interval(count / of, float(limits.low), float(limits.high), of, "Clopper-Pearson")


def corrected_share(count: int, of: int, hits: tuple[int, int], alarms: tuple[int, int]) -> Interval | None:
    """Return the true share behind a share that a faulty test counted, by Rogan and Gladen's estimate.

    hits, alarms: of the cases with and without the property on which the test was measured, those that it found, and all. The
    limits are quantiles of `CORRECTED_DRAWS` draws of all three shares (Jeffreys' prior). None where the test does not tell
    the cases apart.
    """
    recall, false_rate = hits[0] / hits[1], alarms[0] / alarms[1]
    if recall <= false_rate or not of:
        return None
    rng = np.random.default_rng(0)
    q_D, r_D, a_D = (rng.beta(k + 0.5, n - k + 0.5, CORRECTED_DRAWS) for k, n in ((count, of), hits, alarms))
    shares_D = np.clip((q_D - a_D) / np.maximum(r_D - a_D, 1e-9), 0.0, 1.0)
    low, high = np.quantile(shares_D, [0.025, 0.975])
    estimate = min(max((count / of - false_rate) / (recall - false_rate), 0.0), 1.0)
    return Interval(estimate, min(float(low), estimate), max(float(high), estimate), of, "Rogan-Gladen")


CORRECTED_DRAWS = 4000
DRAWS = 1000
"""Number of resamplings of the tasks for an interval."""


def resampling_weights(tasks: int) -> np.ndarray:
    """Return how often each resampling contains each task, [DRAWS, tasks]. The same for every statistic of the same tasks."""
    drawn_DM: np.ndarray = np.random.default_rng(0).multinomial(tasks, np.full(tasks, 1 / tasks), size=DRAWS)
    return drawn_DM


def resampled(values_MS: np.ndarray, of: Callable[[np.ndarray], np.ndarray], level: float = 0.95) -> Interval:
    """Return a statistic of sums over tasks, with percentile limits from resampled tasks; M tasks, S sums.

    of: from sums [..., S] to the statistic [...], nan if it is not defined.
    """
    tasks = len(values_MS)
    drawn_D = of(resampling_weights(tasks) @ values_MS)
    drawn_D = drawn_D[~np.isnan(drawn_D)]
    low, high = np.quantile(drawn_D, [(1 - level) / 2, (1 + level) / 2]) if drawn_D.size else (np.nan, np.nan)
    return Interval(float(of(values_MS.sum(axis=0))), float(low), float(high), tasks, "tasks resampled")
