"""Tests of whether two checkpoints differ. Tasks are the unit, and a task's attempts are never split.

Attempts at one task resemble each other, so m tasks with n attempts each hold fewer than m n independent verdicts. An
interval that resamples attempts is too narrow. A finished script simulated their coverage (data/finished-studies.md).

Array suffixes: M tasks, N attempts at each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from analysis.measure.interval import Interval, student, t_interval

Scores = Sequence[Sequence[float]]
"""The scores of each task's attempts, at least one per task."""

FEW_TASKS = 100
"""Number of tasks below which t limits of verdicts cover too little."""

POWER = 7.848879734349088
"""(z(.975) + z(.8))², for a two-sided test at 5 % with 80 % power. It is written out so that scipy.stats loads only when used."""


@dataclass(frozen=True, slots=True)
class Consistency:
    """The similarity of the attempts at one task.

    flips: chance that two attempts at a task disagree. msb, msw: mean squares between and within tasks. icc: ICC(1),
    the share of the variance between tasks. design_effect: number of attempts that count as one independent verdict.
    """

    flips: float
    msb: float
    msw: float
    icc: float
    design_effect: float


def consistency(scores: Scores) -> Consistency:
    """Return the consistency of equally many attempts at each task.

    Raises ValueError for fewer than two tasks, fewer than two attempts, or unequal numbers of attempts.
    """
    table_MN = np.array(scores, dtype=float)
    m, n = table_MN.shape
    if m < 2 or n < 2:
        raise ValueError("Consistency needs two tasks, and two attempts at each.")
    flips = np.mean([table_MN[:, i] != table_MN[:, j] for i in range(n) for j in range(i)])
    msb = float(n * table_MN.mean(1).var(ddof=1))
    msw = float(table_MN.var(1, ddof=1).mean())
    within = msb + (n - 1) * msw
    icc = (msb - msw) / within if within else 1.0
    return Consistency(float(flips), msb, msw, icc, 1 + (n - 1) * icc)


def mean_score(scores: Scores, level: float = 0.95) -> Interval:
    """Return the mean over tasks with t limits, or with Wilson's limits for few or equal verdicts.

    Wilson's limits, with the effective number of attempts, are for verdicts at fewer than 100 tasks and for verdicts
    that are all alike: 160 solved tasks of 160 are not a certainty. Unequal numbers of attempts hide how much the attempts
    at a task resemble each other, so they get t limits where the tasks differ. Limits of scores in [0, 1] stay there.
    """
    mean_M = _means(scores)
    attempts = min(len(row) for row in scores)
    unequal = any(len(row) > attempts for row in scores)
    if ((mean_M.size >= FEW_TASKS or unequal) and np.ptp(mean_M) > 0) or mean_M.size < 2 or not _verdicts(scores):
        return _within(t_interval(mean_M, level), 0.0, scores)
    effect = consistency([row[:attempts] for row in scores]).design_effect if attempts > 1 else 1.0
    n = sum(len(row) for row in scores) / max(effect, 1.0)
    p, t = float(mean_M.mean()), student((1 + level) / 2, mean_M.size - 1)
    centre = (p + t * t / (2 * n)) / (1 + t * t / n)
    half = t / (1 + t * t / n) * math.sqrt(p * (1 - p) / n + t * t / (4 * n * n))
    return Interval(p, centre - half, centre + half, mean_M.size, "Wilson, effective n")


def pass_hat(scores: Scores, k: int, level: float = 0.95) -> Interval:
    """Return pass^k, the chance that k attempts at a task all succeed (tau-bench; TARL 2.3), with t limits over tasks.

    Each task counts C(c, k) / C(n, k). Raises ValueError if a task has fewer than k attempts.
    """
    fewest = min(len(row) for row in scores)
    if not 1 <= k <= fewest:
        raise ValueError(f"pass^{k} needs {k} attempts at every task; one has {fewest}.")
    shares = [math.comb(row.count(1), k) / math.comb(len(row), k) for row in map(list, scores)]
    return _within(t_interval(np.array(shares), level), 0.0, [shares])


@dataclass(frozen=True, slots=True)
class Difference:
    """B minus A on the same tasks. p: of the exact test that swaps A and B within tasks."""

    interval: Interval
    p: float


def difference(a: Scores, b: Scores, level: float = 0.95) -> Difference:
    """Return B minus A, paired over tasks: a[i] and b[i] are attempts at the same task."""
    difference_M = _means(b) - _means(a)
    p = swap_test(difference_M, math.lcm(*{len(row) for row in (*a, *b)}))
    return Difference(difference_interval(a, b, level), p)


def difference_interval(a: Scores, b: Scores, level: float = 0.95) -> Interval:
    """Return the interval of B minus A, paired over tasks: a[i] and b[i] are attempts at the same task.

    Two made-up tasks are added for verdicts at fewer than 100 tasks, or with the same difference at all tasks. They
    differ by one attempt in opposite directions (Bonett and Price 2012). If few tasks differ at all, t limits alone
    cover as little as 88 %. Limits of differences of scores in [0, 1] stay in [-1, 1].
    """
    difference_M = _means(b) - _means(a)
    padded, method = difference_M, "t over tasks, paired"
    few = difference_M.size < FEW_TASKS or np.ptp(difference_M) == 0
    if few and difference_M.size > 1 and _verdicts(a) and _verdicts(b):
        one_attempt = 1 / min(len(row) for row in (*a, *b))
        padded, method = (
            np.append(difference_M, [one_attempt, -one_attempt]),
            "t over tasks and two made-up ones, paired",
        )
    limits, mean = t_interval(padded, level), float(difference_M.mean())
    interval = Interval(mean, min(limits.low, mean), max(limits.high, mean), difference_M.size, method)
    return _within(interval, -1.0, [*a, *b])


def swap_test(difference_M: np.ndarray, attempts: int) -> float:
    """Return the two-sided p of the mean difference if either sign of each task's difference is equally likely.

    It is exact if the differences are multiples of 1 / attempts (verdicts), else from 9,999 random draws of signs.
    """
    whole_M = difference_M * attempts
    # The exact distribution needs memory in proportion to the sum, and an import may hold a score of 1e29.
    if np.abs(whole_M).sum() > 10**6 or not np.allclose(whole_M, np.rint(whole_M), atol=1e-9):
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(9999, difference_M.size))
        extreme = np.abs(signs @ difference_M) >= abs(difference_M.sum()) - 1e-12 * max(1.0, np.abs(difference_M).sum())
        return float((extreme.sum() + 1) / 10_000)
    # The distribution of the sum: for each size of difference, a binomial number of plus signs.
    sizes, counts = np.unique(np.abs(np.rint(whole_M)).astype(int), return_counts=True)
    chances = np.ones(1)
    for size, count in zip(sizes, counts, strict=True):
        if size:
            spread = np.zeros(2 * size * count + 1)
            spread[:: 2 * size] = scipy.stats.binom.pmf(np.arange(count + 1), count, 0.5)
            chances = scipy.signal.convolve(chances, spread)
    sums = np.arange(chances.size) - chances.size // 2
    return min(float(chances[np.abs(sums) >= abs(int(np.rint(whole_M.sum())))].sum()), 1.0)


@dataclass(frozen=True, slots=True)
class Resolution:
    """The attempts or tasks that would show a difference (5 % two-sided, power 80 %).

    attempts: at each of these tasks; None if no number is enough. tasks: with the present number of attempts.
    """

    delta: float
    attempts: int | None
    tasks: int

    def __str__(self) -> str:
        if self.attempts is not None:
            return f"{self.attempts} attempts at each of these tasks would show a difference of {self.delta:g}."
        return (
            f"No number of attempts at these tasks would show a difference of {self.delta:g}; "
            f"about {self.tasks:,} tasks would."
        )


def resolution(a: Scores, b: Scores, delta: float = 0.02) -> Resolution:
    """Compute the resolution from the observed variances between tasks (of the true differences) and within tasks (of
    attempts).

    Raises ValueError for fewer than two tasks or two attempts.
    """
    n = min(len(row) for row in (*a, *b))
    if n < 2 or len(a) < 2:
        raise ValueError("What attempts would show needs two attempts at each of two tasks.")
    between, within = variances(a, b)
    room = len(a) * delta**2 / POWER - between
    return Resolution(
        delta,
        math.ceil(within / room) if room > 0 else None,
        math.ceil(POWER * (between + within / n) / delta**2),
    )


def variances(a: Scores, b: Scores) -> tuple[float, float]:
    """Return the variance of the true difference between tasks, and the variance of one attempt's difference within a task.

    The observed variance of the tasks' differences has both parts. At least two tasks and two attempts are needed.
    """
    n = min(len(row) for row in (*a, *b))
    within = float(np.mean([np.var(x, ddof=1) + np.var(y, ddof=1) for x, y in zip(a, b, strict=True)]))
    return max(0.0, float((_means(b) - _means(a)).var(ddof=1)) - within / n), within


def _means(scores: Scores) -> np.ndarray:
    return np.array([sum(row) / len(row) for row in scores])


def _within(interval: Interval, lower: float, scores: Scores) -> Interval:
    """Return the interval inside [lower, 1] if all scores are in [0, 1] and it has limits."""
    if not math.isfinite(interval.low) or not all(0 <= score <= 1 for row in scores for score in row):
        return interval
    return replace(interval, low=max(interval.low, lower), high=min(interval.high, 1.0))


def _verdicts(scores: Scores) -> bool:
    """Return whether all scores are 0 or 1."""
    return all(score in (0, 1) for row in scores for score in row)
