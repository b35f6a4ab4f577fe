"""One-sided limits for the mean of bounded values, such as differences of scores. They hold for few and rare values.

A t limit assumes that the spread of the observed values is the true spread. That fails where almost all tasks have the same
score on both sides: if a change breaks 1 task in 50, a sample of 100 tasks contains no broken task in 13 % of cases. The
observed spread is then 0, and a t limit passes the change. `benchmarks/gate.py` counts how often.

The limit here is Gaffke's (2005; Learned-Miller and Thomas 2020): the observed values and one made-up value at the end of the
range are weighted by Dirichlet(1, ..., 1) weights. The limit is a quantile of the weighted mean. For values that are all 0 or
1 it is Clopper and Pearson's exact limit. For many values it approaches the t limit. That it never errs in the wrong
direction is proven for 0/1 values, and a conjecture for others that no simulation has refuted.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

PRECISION = 1e-9
"""Absolute precision of a p value."""
MAX_POINTS = 1 << 17


def p_above(values_M: np.ndarray, bound: float, low: float) -> float:
    """Return the p value of the hypothesis that the mean is at most `bound`. A small one shows that the mean is larger.

    low: the smallest possible value. Raises ValueError without values, or for a value below `low`.
    """
    if values_M.size == 0 or float(values_M.min()) < low - 1e-9:
        raise ValueError(f"The limit needs values, and none below {low:g}.")
    if bound <= low:
        return 0.0
    values_K, counts_K = np.unique(np.round(values_M, 12), return_counts=True)
    return _chance_below(np.append(values_K, low) - bound, np.append(counts_K, 1).astype(float))


def p_below(values_M: np.ndarray, bound: float, high: float) -> float:
    """Return the p value of the hypothesis that the mean is at least `bound`. high: the largest possible value."""
    return p_above(-values_M, -bound, -high)


def lower_limit(values_M: np.ndarray, level: float, low: float) -> float:
    """Return the one-sided lower limit of the mean: the largest bound that the mean exceeds at this level (.05)."""
    mean = float(values_M.mean())
    if p_above(values_M, mean, low) <= level:
        return mean
    return float(brentq(lambda bound: p_above(values_M, bound, low) - level, low, mean, xtol=1e-7))


def upper_limit(values_M: np.ndarray, level: float, high: float) -> float:
    """Return the one-sided upper limit of the mean."""
    return -lower_limit(-values_M, level, -high)


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
