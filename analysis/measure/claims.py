"""Measure the arms of a claim over their seeds: intervals of each arm, and the verdict on two of them.

A run that crashed twice counts as collapsed. It is not a missing value: the other arm may learn with the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis.measure.interval import Interval, score_interval, share_interval, t_interval
from analysis.measure.verdict import ArmOutcomes, ClaimVerdict, Primary, verdict

ClaimMetric = Literal["score", "early", "collapsed", "cpu_seconds", "tokens", "time_weighted"]
NOT_MEASURED = Interval(math.nan, math.nan, math.nan, 0, "t")

PARTS: Mapping[ClaimMetric, Literal["both", "shares", "scores"]] = {
    "score": "both",
    "time_weighted": "both",
    "collapsed": "shares",
    "early": "scores",
    "cpu_seconds": "scores",
    "tokens": "scores",
}
"""The parts of a verdict by metric. Outcomes at the end have both parts, because a run may collapse before the end."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One finished run of an arm. None means not measured.

    score: mean of the last evaluations. best: score of the checkpoint that validation chose. early: validation after
    a sixth of the budget. cpu_seconds: until validation first reaches the claim's target. tokens, updates: until
    validation stays at the target. forgot: the score fell at the evaluation horizon, but not at the training horizon.
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
    tokens: float | None = None
    updates: float | None = None
    forgot: bool = False

    def value(self, metric: ClaimMetric | Literal["best", "updates"]) -> float | None:
        """Return the metric in the form that is compared: the logarithm of a cost, else the value."""
        if metric == "collapsed":
            return float(self.crashed or self.collapsed)
        if metric in ("cpu_seconds", "tokens", "updates"):
            cost = {"cpu_seconds": self.cpu_seconds, "tokens": self.tokens, "updates": self.updates}[metric]
            return math.log(cost) if cost else None
        values = {"score": self.score, "best": self.best, "early": self.early, "time_weighted": self.time_weighted}
        return 0.0 if self.crashed else values[metric]


@dataclass(frozen=True, slots=True)
class ArmIntervals:
    """One arm over its seeds. Intervals are of 95 %: Student's t inside [0, 1], Clopper and Pearson's for the
    collapsed share.

    metric: the claim's metric. best: score of the checkpoint that validation chose. forgot: runs that lost ability
    beyond their training horizon. tokens, updates: mean cost to the claim's target, or of all training; nan if not
    recorded.
    """

    seeds: tuple[int, ...]
    crashed: int
    forgot: int
    metric: Interval
    score: Interval
    best: Interval
    collapsed: Interval
    tokens: float
    updates: float


def arm_intervals(results: Sequence[SeedResult], metric: ClaimMetric) -> ArmIntervals:
    """Measure one arm with at least one result."""
    collapsed = sum(result.value("collapsed") == 1 for result in results)
    return ArmIntervals(
        tuple(result.seed for result in results),
        sum(result.crashed for result in results),
        sum(result.forgot for result in results),
        _interval(results, metric),
        _interval(results, "score"),
        _interval(results, "best"),
        share_interval(collapsed, len(results)),
        _mean([result.tokens for result in results]),
        _mean([result.updates for result in results]),
    )


def values_by_seed(results: Sequence[SeedResult], metric: ClaimMetric) -> dict[int, dict[str, float]]:
    """Return the metric by seed and arm, seeds in order."""
    values: dict[int, dict[str, float]] = {}
    for result in results:
        if (value := result.value(metric)) is not None:
            values.setdefault(result.seed, {})[result.arm] = value
    return {seed: values[seed] for seed in sorted(values)}


def contrast_verdict(
    results: Sequence[SeedResult],
    metric: ClaimMetric,
    more: str,
    than: str,
    delta: float,
    primary: Primary = "welch",
) -> ClaimVerdict:
    """Return the verdict on `more` minus `than` over the seeds that both arms have."""
    by_arm = {arm: {result.seed: result for result in results if result.arm == arm} for arm in (more, than)}
    seeds = sorted(by_arm[more].keys() & by_arm[than].keys())
    score: ClaimMetric = "score" if metric == "collapsed" else metric
    first, second = (
        ArmOutcomes(
            tuple(by_arm[arm][seed].value(score) for seed in seeds),
            tuple(by_arm[arm][seed].value("collapsed") == 1 for seed in seeds),
        )
        for arm in (more, than)
    )
    return verdict(first, second, delta, parts=PARTS[metric], primary=primary, more_is_collapse=metric == "collapsed")


def _interval(results: Sequence[SeedResult], metric: ClaimMetric | Literal["best"]) -> Interval:
    values = np.array([value for result in results if (value := result.value(metric)) is not None])
    if not values.size:
        return NOT_MEASURED
    return t_interval(values) if metric in ("cpu_seconds", "tokens", "time_weighted") else score_interval(values)


def _mean(values: Sequence[float | None]) -> float:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else math.nan
