"""The smallest difference that a number of paired conversations can show."""

from __future__ import annotations

import math

import scipy

SCORE_DEVIATION = 0.6
"""Planned standard deviation of a paired difference in success between a person and a simulated user."""

TURNS_DEVIATION = 3.0
"""Planned standard deviation of a paired difference in turns."""


def smallest_seen(pairs: int, deviation: float = SCORE_DEVIATION, *, power: float = 0.8, level: float = 0.95) -> float:
    """Return (z_power + z_level) x deviation / sqrt(pairs): the true difference that a two-sided test finds with this power.

    z_level is the normal quantile of (1 + level) / 2. Raises ValueError without a pair.
    """
    if pairs < 1:
        raise ValueError("A difference needs at least one pair.")
    quantiles = scipy.stats.norm.ppf(power) + scipy.stats.norm.ppf((1 + level) / 2)
    return float(quantiles * deviation / math.sqrt(pairs))
