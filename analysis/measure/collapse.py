"""Decide whether a run collapsed: on held-out tasks at its end, and over its validations while it trains.

At the end, the last step is compared with the run's best checkpoint by the rule of `collapse_rule`. While a run trains, the alarm
``validation_fell`` applies a stricter rule, because it may stop the run. Two consecutive validations must be that far below the
median of the three best. Runs that did not collapse swing by .12 between two validations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
import scipy

from analysis.measure.collapse_rule import MIN_FALL, min_fall
from analysis.measure.interval import Interval, share_interval


@dataclass(frozen=True, slots=True)
class ValidationScores:
    """Scores of one validation by task."""

    step: int
    scores: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Return the mean score of its tasks."""
        return fmean(self.scores.values())


@dataclass(frozen=True, slots=True)
class Fall:
    """Two consecutive validations far below the reference. step: of the second one.

    score: mean of the second one. reference: median of the three best means so far. bound: the limit below which the
    second one fell.
    """

    step: int
    score: float
    reference: float
    bound: float


def fallen(history: Sequence[ValidationScores], smallest_fall: float = MIN_FALL) -> Fall | None:
    """Return the first fall in a run's validations, oldest first, or None. Fewer than four validations cannot show a fall.

    smallest_fall: smallest fall that counts, in units of the score.
    """
    scored = [validation for validation in history if validation.scores]
    for end in range(4, len(scored) + 1):
        validations = scored[:end]
        median = sorted(validations, key=lambda validation: validation.mean, reverse=True)[1]
        bounds = [_bound(median, validation, smallest_fall) for validation in validations[-2:]]
        if all(bound is not None and v.mean < bound for v, bound in zip(validations[-2:], bounds, strict=True)):
            assert bounds[1] is not None
            return Fall(validations[-1].step, validations[-1].mean, median.mean, bounds[1])
    return None


def _bound(reference: ValidationScores, validation: ValidationScores, smallest_fall: float) -> float | None:
    """Return the mean below which a validation has fallen, or None if fewer than two tasks were scored both times."""
    pairs = [reference.scores[task] - score for task, score in validation.scores.items() if task in reference.scores]
    if len(pairs) < 2:
        return None
    error = stdev(pairs) / math.sqrt(len(pairs))
    return reference.mean - min_fall(error, smallest_fall)


def far_below(best_M: np.ndarray, last_M: np.ndarray) -> tuple[float, float] | None:
    """Return the mean scores of the best checkpoint and the last step if the run collapsed, else None.

    best_M, last_M: scores on the same M tasks. Fewer than two tasks decide nothing.
    """
    if len(best_M) < 2:
        return None
    fall_M = best_M - last_M
    error = float(fall_M.std(ddof=1)) / math.sqrt(len(fall_M))
    return (float(best_M.mean()), float(last_M.mean())) if fall_M.mean() > min_fall(error) else None


@dataclass(frozen=True, slots=True)
class CollapsedSeeds:
    """The collapsed seeds of one side, with the held-out scores of the best checkpoint and of the last step.

    share: of all the side's trained seeds. p: Fisher's exact test against the first side; nan for the first side itself.
    """

    side: str
    share: Interval
    seeds: Mapping[int, tuple[float, float]]
    p: float = math.nan


def collapsed_seeds(
    side: str, falls: Mapping[int, tuple[float, float] | None], first: CollapsedSeeds | None
) -> CollapsedSeeds:
    """Return one side's collapsed seeds, tested against the first side. falls: the result of `far_below` for every
    trained seed.
    """
    fallen = {seed: scores for seed, scores in falls.items() if scores is not None}
    share = share_interval(len(fallen), len(falls))
    if first is None:
        return CollapsedSeeds(side, share, fallen)
    counts = [[len(seeds), of - len(seeds)] for seeds, of in ((first.seeds, first.share.units), (fallen, len(falls)))]
    return CollapsedSeeds(side, share, fallen, float(scipy.stats.fisher_exact(counts).pvalue))
