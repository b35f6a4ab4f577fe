"""One-sided limits for the mean of bounded values, such as differences of scores. They hold for few and rare values.

A t limit assumes that the spread of the observed values is the true spread. That fails where almost all tasks have the same
score on both sides: if a change breaks 1 task in 50, a sample of 100 tasks contains no broken task in 13 % of cases. The
observed spread is then 0, and a t limit passes the change. `lab/benchmarks/gate.py` counts how often.

The limit here is Gaffke's (2005; Learned-Miller and Thomas 2020): the observed values and one made-up value at the end of the
range are weighted by Dirichlet(1, ..., 1) weights. The limit is a quantile of the weighted mean. For values that are all 0 or
1 it is Clopper and Pearson's exact limit. For many values it approaches the t limit. That it never errs in the wrong
direction is proven for 0/1 values, and a conjecture for others that no simulation has refuted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

CHANCE = 0.8
"""Chance that the named number of tasks, attempts or seeds decides if the observed values are the true ones."""
MANY = 1_000_000
"""A question that needs more tasks or attempts than this is called undecidable."""
PRECISION = 1e-9
"""Absolute precision of a p value."""
MAX_POINTS = 1 << 17


def p_above(values_M: np.ndarray, bound: float, low: float, units: int | None = None) -> float:
    """Return the p value of the hypothesis that the mean is at most `bound`. A small one shows that the mean is larger.

    low: the smallest possible value. units: the number of values, if these are taken as a sample of more. Raises ValueError
    without values, or for a value below `low`.
    """
    if values_M.size == 0 or float(values_M.min()) < low - 1e-9:
        raise ValueError(f"The limit needs values, and none below {low:g}.")
    if bound <= low:
        return 0.0
    values_K, counts_K = np.unique(np.round(values_M, 12), return_counts=True)
    weights_K = counts_K * ((units or values_M.size) / values_M.size)
    return _chance_below(np.append(values_K, low) - bound, np.append(weights_K, 1.0))


def p_below(values_M: np.ndarray, bound: float, high: float) -> float:
    """Return the p value of the hypothesis that the mean is at least `bound`. high: the largest possible value."""
    return p_above(-values_M, -bound, -high)


def limit(p: Callable[[float], float], level: float, inside: float, outside: float) -> float:
    """Return the bound between `inside` and `outside` at which a p value is the level.

    inside: the estimate. It is the limit itself if its own p value is small enough. outside: a bound whose p value is at
    most the level.
    """
    if p(inside) <= level:
        return inside
    return float(brentq(lambda bound: p(bound) - level, outside, inside, xtol=1e-7))


def units_to_decide(values_M: np.ndarray, low: float, high: float, level: float) -> int | None:
    """Return the number of values like these that shows on which side of 0 their mean is, with a chance of `CHANCE`.

    low, high: the smallest and largest possible value. The mean is taken as less far from 0 by its standard error times the
    quantile of the chance. None if the mean is 0, or for more than `MANY`.
    """
    if values_M.mean() < 0:
        values_M, low = -values_M, -high
    spread = float(ndtri(CHANCE) * values_M.std())

    def decided(units: int) -> bool:
        shifted_M = np.maximum(values_M - spread / math.sqrt(units), low)
        return p_above(shifted_M, 0.0, low, units) <= level

    few, many = 0, values_M.size
    while not decided(many):
        few, many = many, 2 * many
        if many > 2 * MANY:
            return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if decided(middle) else (middle, many)
    return many


def _chance_below(above_K: np.ndarray, counts_K: np.ndarray) -> float:
    """Return P(sum of above_k G_k <= 0), with G_k from Gamma(counts_k): the sign of a Dirichlet-weighted mean.

    Gil-Pelaez's inversion of the characteristic function, by the trapezoid rule in log t. The number of points doubles
    until the result no longer changes.
    """
    if not (above_K < 0).any():
        return 0.0
    if not (above_K > 0).any():
        return 1.0
    scale = math.sqrt(float(counts_K @ above_K**2))

    def damping(t: float) -> float:
        return float(counts_K @ np.log1p((above_K * t) ** 2)) / 2

    end = 1 / scale
    while damping(end) < 30 and end < 1e12 / scale:
        end *= 2
    start, stop = math.log(1e-11 / (scale * math.sqrt(float(counts_K.sum())))), math.log(end)

    def total(points_s: np.ndarray) -> float:
        x_KS = above_K[:, None] * np.exp(points_s)
        angle_S = counts_K @ np.arctan(x_KS)
        return float((np.sin(angle_S) * np.exp(-(counts_K @ np.log1p(x_KS**2)) / 2)).sum())

    points = 256
    step = (stop - start) / points
    summed = total(start + step * np.arange(points + 1))
    integral = summed * step
    while points < MAX_POINTS:
        summed += total(start + step * (np.arange(points) + 0.5))
        points, step, before = 2 * points, step / 2, integral
        integral = summed * step
        if abs(integral - before) < PRECISION:
            break
    return min(1.0, max(0.0, 0.5 - integral / math.pi))
