"""Tests of whether two recipes differ. Seeds are the unit: the arms share each seed's cold start and tasks.

An interval over tasks from one run of each says nothing about recipes. With two equal recipes whose seeds deviate by .05, a
paired test over 400 tasks calls them different in about half of all cases (docs/findings.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from analysis.measure.interval import Interval, t_interval

MAX_SEEDS = 10_000


@dataclass(frozen=True, slots=True)
class SeedContrast:
    """B minus A over the seeds that both have. deviation: of the paired differences, nan for a single seed."""

    interval: Interval
    deviation: float
    seeds: tuple[int, ...]


def contrast(a: Mapping[int, float], b: Mapping[int, float], level: float = 0.95) -> SeedContrast:
    """Return B minus A over paired seeds, with Student's t. a, b: score by seed. Raises ValueError without a common seed."""
    seeds = tuple(sorted(set(a) & set(b)))
    if not seeds:
        raise ValueError("The two have no seed in common, so nothing is paired.")
    difference_S = np.array([b[seed] - a[seed] for seed in seeds])
    deviation = float(difference_S.std(ddof=1)) if len(seeds) > 1 else math.nan
    return SeedContrast(t_interval(difference_S, level), deviation, seeds)


def seeds_needed(deviation: float, effect: float, alpha: float = 0.05) -> int:
    """Return the smallest number of seeds at which a paired t test detects an effect with 80 % power.

    alpha: level of the test, two-sided. For equality within delta, the effect is delta minus the absolute difference. Raises
    ValueError for an effect of 0.
    """
    return _smallest(lambda n: _quantiles(alpha, n - 1) * deviation / math.sqrt(n), effect)


def welch_seeds_needed(a: float, b: float, effect: float, alpha: float = 0.05) -> int:
    """Return the smallest number of seeds per arm at which Welch's test detects an effect with 80 % power.

    a, b: deviations of the two arms. The rest is as in `seeds_needed`.
    """
    spread = math.hypot(a, b)

    def visible(n: int) -> float:
        freedom = (n - 1) * spread**4 / (a**4 + b**4) if spread > 0 else n - 1
        return _quantiles(alpha, freedom) * spread / math.sqrt(n)

    return _smallest(visible, effect)


def _quantiles(alpha: float, freedom: float) -> float:
    return float(scipy.stats.t.ppf(1 - alpha / 2, freedom) + scipy.stats.t.ppf(0.8, freedom))


def _smallest(visible: Callable[[int], float], effect: float) -> int:
    """Return the smallest n at which the detectable effect is at most this one."""
    if effect <= 0:
        raise ValueError("No number of seeds shows an effect of nothing.")
    return next((n for n in range(2, MAX_SEEDS) if visible(n) <= effect), MAX_SEEDS)


def deviation_limit(deviation: float, seeds: int, level: float = 0.8) -> float:
    """Return the upper one-sided limit of a deviation that was estimated from this many seeds."""
    return deviation * math.sqrt((seeds - 1) / float(scipy.stats.chi2.ppf(1 - level, seeds - 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p values, in the order given: the chance of any false alarm among all stays at the level.

    A nan, which no test gave, stays nan and does not count.
    """
    tested = [index for index, p in enumerate(p_values) if not math.isnan(p)]
    adjusted, highest = list(p_values), 0.0
    for rank, index in enumerate(sorted(tested, key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (len(tested) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def crossed(a: np.ndarray, b: np.ndarray, level: float = 0.95, draws: int = 10_000) -> Interval:
    """Return the mean difference if all seeds play the same published tasks, with limits that hold for other tasks too.

    a, b: scores of shape [S seeds, M tasks]; at least two seeds. Each limit is the wider of two: Student's t over seeds, and a
    percentile of seeds and tasks resampled together by a fixed generator. Percentiles alone are too narrow for few seeds.
    """
    difference_SM = b - a
    by_seed = t_interval(difference_SM.mean(axis=1), level)
    seeds, tasks = difference_SM.shape
    rng = np.random.default_rng(0)
    # A resampled mean is a product of weights: how often each seed, and each task, was drawn.
    seed_DS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws) / seeds
    task_DM = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=draws) / tasks
    mean_D = np.einsum("ds,sm,dm->d", seed_DS, difference_SM, task_DM, optimize=True)
    low, high = np.quantile(mean_D, [(1 - level) / 2, (1 + level) / 2])
    low, high = max(min(float(low), by_seed.low), -1.0), min(max(float(high), by_seed.high), 1.0)
    return replace(by_seed, low=low, high=high, method="the wider of t, and seeds and tasks resampled")
