"""Whether a run's validation has fallen from where it had been: the rule behind the alarm ``validation_fell``.

Runs that did not collapse swing by .12 between two validations, and one bad validation proves nothing. So two in a row have
to lie below the median of the three best by more than .1 and by more than three standard errors of the paired difference,
task by task, since every validation plays the same tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEAST = 0.1
"""Smallest fall that counts."""
ERRORS = 3.0
"""Standard errors of the paired difference that a fall has to exceed."""


@dataclass(frozen=True, slots=True)
class Validation:
    """Scores of one validation by task."""

    step: int
    scores: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Mean score of its tasks."""
        return fmean(self.scores.values())


@dataclass(frozen=True, slots=True)
class Fall:
    """Two validations in a row, the second at ``step``, lie far below the reference.

    score: mean of the second. reference: median of the three best means so far. bound: what both had to stay above.
    """

    step: int
    score: float
    reference: float
    bound: float


def fallen(history: Sequence[Validation], least: float = LEAST) -> Fall | None:
    """The first fall in a run's validations, oldest first; None where there is none, or fewer than four validations.

    least: smallest fall that counts, in units of the score.
    """
    scored = [validation for validation in history if validation.scores]
    for end in range(4, len(scored) + 1):
        seen = scored[:end]
        median = sorted(seen, key=lambda validation: validation.mean, reverse=True)[1]
        bounds = [_bound(median, validation, least) for validation in seen[-2:]]
        if all(bound is not None and v.mean < bound for v, bound in zip(seen[-2:], bounds, strict=True)):
            assert bounds[1] is not None
            return Fall(seen[-1].step, seen[-1].mean, median.mean, bounds[1])
    return None


def _bound(reference: Validation, validation: Validation, least: float) -> float | None:
    """The mean below which the validation has fallen; None where too few tasks were scored both times."""
    pairs = [reference.scores[task] - score for task, score in validation.scores.items() if task in reference.scores]
    if len(pairs) < 2:
        return None
    error = stdev(pairs) / math.sqrt(len(pairs))
    return reference.mean - max(least, ERRORS * error)
