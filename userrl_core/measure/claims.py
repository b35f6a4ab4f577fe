"""Measure the arms of a claim over their seeds: intervals of each arm, and the values that the verdict pairs.

A run that crashed counts: with score 0 and as collapsed. An arm that crashes where the other one learns is no missing value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from userrl_core.measure.interval import Interval, share_interval, t_interval
from userrl_core.measure.verdict import ClaimVerdict, verdict

ClaimMetric = Literal["score", "early", "collapsed", "cpu_seconds", "time_weighted"]
NOT_MEASURED = Interval(math.nan, math.nan, math.nan, 0, "t")


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One run of an arm that is over. None: what was not measured of it.

    score: of the last evaluations. best: of the checkpoint that validation chose. early: validation after a sixth of the
    budget. cpu_seconds: to the claim's target.
    """

    arm: str
    seed: int
    crashed: bool
    collapsed: bool
    score: float | None
    best: float | None
    early: float | None
    cpu_seconds: float | None
    time_weighted: float | None

    def value(self, metric: ClaimMetric | Literal["best"]) -> float | None:
        """Return the metric as it is compared: processor time by its logarithm."""
        if metric == "collapsed":
            return float(self.crashed or self.collapsed)
        if metric == "cpu_seconds":
            return None if self.cpu_seconds is None else math.log(self.cpu_seconds)
        known = {"score": self.score, "best": self.best, "early": self.early, "time_weighted": self.time_weighted}
        return 0.0 if self.crashed else known[metric]


@dataclass(frozen=True, slots=True)
class ArmIntervals:
    """One arm over its seeds. Intervals are of 95 %: Student's t, Clopper and Pearson's for the collapsed share.

    metric: what the claim measures; best: of the checkpoint that validation chose.
    """

    seeds: tuple[int, ...]
    crashed: int
    metric: Interval
    score: Interval
    best: Interval
    collapsed: Interval


def arm_intervals(results: Sequence[SeedResult], metric: ClaimMetric) -> ArmIntervals:
    """Measure one arm, of which there is at least one result."""
    fallen = sum(result.value("collapsed") == 1 for result in results)
    return ArmIntervals(
        tuple(result.seed for result in results),
        sum(result.crashed for result in results),
        _interval(results, metric),
        _interval(results, "score"),
        _interval(results, "best"),
        share_interval(fallen, len(results)),
    )


def values_by_seed(results: Sequence[SeedResult], metric: ClaimMetric) -> dict[int, dict[str, float]]:
    """Return the metric by seed and arm, seeds in order."""
    values: dict[int, dict[str, float]] = {}
    for result in results:
        if (value := result.value(metric)) is not None:
            values.setdefault(result.seed, {})[result.arm] = value
    return {seed: values[seed] for seed in sorted(values)}


def contrast_verdict(values: Mapping[int, Mapping[str, float]], more: str, than: str, delta: float) -> ClaimVerdict:
    """Return the verdict on `more` less `than` over the seeds that have both."""
    paired = [by_arm for by_arm in values.values() if {more, than} <= by_arm.keys()]
    return verdict([by_arm[more] - by_arm[than] for by_arm in paired], delta)


def _interval(results: Sequence[SeedResult], metric: ClaimMetric | Literal["best"]) -> Interval:
    values = [value for result in results if (value := result.value(metric)) is not None]
    return t_interval(np.array(values)) if values else NOT_MEASURED
