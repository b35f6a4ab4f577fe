"""The smallest difference that a number of paired conversations can show."""

from __future__ import annotations

import math

import scipy

SCORE_DEVIATION = 0.6
"""Planned standard deviation of a paired difference in success between a person and a simulated user."""


POWER, LEVEL = 0.8, 0.95


def smallest_seen(pairs: int) -> float:
    """Return (z_power + z_level) x deviation / sqrt(pairs): the true difference in success that a two-sided test finds.

    z_power and z_level are the normal quantiles of POWER and of (1 + LEVEL) / 2. Raises ValueError without a pair.
    """
    if pairs < 1:
        raise ValueError("A difference needs at least one pair.")
    quantiles = scipy.stats.norm.ppf(POWER) + scipy.stats.norm.ppf((1 + LEVEL) / 2)
    return float(quantiles * SCORE_DEVIATION / math.sqrt(pairs))
