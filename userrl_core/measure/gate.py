"""The answer to one rule of a release gate: PASS, FAIL or INCONCLUSIVE, and the data that would decide an open question.

A rule passes if the data rule out that it is broken, and fails if they rule out that it is kept. Both tests are one-sided at
the rule's level. A gate passes only if all rules pass, so the chance that it passes a candidate that breaks any rule is at
most that level. The chances of a false FAIL add up over the rules.

The unit of a question about checkpoints is the task: attempts at a task are averaged and never split. It uses the limits of
`bounded`, because t limits pass too often where nearly all tasks have the same score on both sides. The unit of a question
about recipes is the seed, with Student's t. If a seed collapsed, the bounded limits are used for seeds too.

Array suffixes: M tasks, S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from userrl_core.measure.bounded import lower_limit, p_above, p_below, upper_limit
from userrl_core.measure.checkpoints import Scores
from userrl_core.measure.interval import MIN_SEEDS, Interval, seed_difference_interval, share_interval
from userrl_core.measure.recipes import MAX_SEEDS, seeds_needed

Answer = Literal["PASS", "FAIL", "INCONCLUSIVE"]
CHANCE = 0.8
"""Chance that the named number of tasks, attempts or seeds decides if the observed values are the true ones."""
MANY = 1_000_000
"""A rule that needs more tasks or attempts than this is called undecidable."""
MIN_COSTS = 10
"""Fewest tasks for a statement about costs."""


@dataclass(frozen=True, slots=True)
class Needed:
    """The sizes that would decide a rule; each of them alone is enough. None: no size of this kind is known to be enough.

    attempts_help: False if no number of attempts at the present tasks is enough.
    """

    tasks: int | None = None
    attempts: int | None = None
    seeds: int | None = None
    attempts_help: bool | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one rule.

    interval: the estimate between its two one-sided limits, each at the rule's level. bound: the value that the estimate is
    tested against. p_kept: p value of "the rule is broken" (small: PASS). p_broken: p value of "the rule is kept" (small:
    FAIL). needed: None unless the answer is INCONCLUSIVE. reason: why nothing was tested.
    """

    answer: Answer
    interval: Interval
    bound: float
    p_kept: float
    p_broken: float
    needed: Needed | None = None
    reason: str = ""


def untested(reason: str, bound: float, interval: Interval | None = None, needed: Needed | None = None) -> Decision:
    """Return INCONCLUSIVE with a reason, for data that allow no test."""
    unknown = interval or Interval(math.nan, math.nan, math.nan, 0, "none")
    return Decision("INCONCLUSIVE", unknown, bound, math.nan, math.nan, needed, reason)


def difference_of_tasks(
    a: Scores, b: Scores, bound: float, level: float, *, reach: float = 1.0, averaged: bool = True
) -> Decision:
    """Test whether B minus A is above the bound, paired over tasks.

    a[i], b[i]: values of the attempts at task i; their means are compared. reach: the largest difference that a task can
    have, the range of the score. averaged: False if a value is not a mean over attempts (pass^k), so that nothing is said
    about more attempts.
    """
    difference_M = np.array([np.mean(y) - np.mean(x) for x, y in zip(a, b, strict=True)])
    decision = _bounded(difference_M, bound, level, reach, "Gaffke's limits over tasks, paired")
    if decision.answer != "INCONCLUSIVE":
        return decision
    gap = abs(float(difference_M.mean()) - bound)
    tasks = _tasks_needed(difference_M, gap, level, reach)
    attempts, help_ = _attempts_needed(a, b, difference_M, gap, level) if averaged else (None, None)
    return replace(decision, needed=Needed(tasks, attempts, attempts_help=help_))


def difference_of_seeds(
    difference_S: np.ndarray, bound: float, level: float, *, collapsed: bool, reach: float = 1.0
) -> Decision:
    """Test whether B minus A is above the bound, paired over seeds.

    collapsed: whether a seed of either side collapsed. Then the differences are far from normal, and the bounded limits are
    used (`benchmarks/intervals.py` has the coverage of t limits).
    """
    if difference_S.size < MIN_SEEDS:
        mean = float(difference_S.mean()) if difference_S.size else math.nan
        interval = Interval(mean, math.nan, math.nan, int(difference_S.size), "values", tuple(map(float, difference_S)))
        reason = f"a statement about recipes needs at least {MIN_SEEDS} seeds that both sides have"
        return untested(reason, bound, interval, Needed(seeds=MIN_SEEDS))
    gap = abs(float(difference_S.mean()) - bound)
    if collapsed:
        decision = _bounded(difference_S, bound, level, reach, "Gaffke's limits over seeds, paired")
        needed = Needed(seeds=_tasks_needed(difference_S, gap, level, reach))
    else:
        decision = _student(difference_S, bound, level)
        deviation = float(difference_S.std(ddof=1))
        seeds = seeds_needed(deviation, gap, 2 * level) if gap > 0 else None
        needed = Needed(seeds=seeds if seeds is not None and seeds < MAX_SEEDS else None)
    return decision if decision.answer != "INCONCLUSIVE" else replace(decision, needed=needed)


def share_at_most(count: int, of: int, most: float, level: float) -> Decision:
    """Test whether a share, such as the share of collapsed seeds, is at most `most`, by the exact binomial test."""
    p_kept = float(stats.binom.cdf(count, of, most))
    p_broken = float(stats.binom.sf(count - 1, of, most))
    interval = share_interval(count, of, 1 - 2 * level)
    decision = _decided(interval, most, p_kept, p_broken, level)
    if decision.answer != "INCONCLUSIVE":
        return decision
    return replace(decision, needed=Needed(seeds=_seeds_for_share(count / max(of, 1), of, most, level)))


def ratio_at_most(
    a: Sequence[float], b: Sequence[float], ratio: float, level: float, *, unit: Literal["tasks", "seeds"] = "tasks"
) -> Decision:
    """Test whether B costs at most `ratio` times what A costs, paired over tasks or seeds.

    The test is Student's t over log(b / a), so it is about the geometric mean of the ratios. Costs are skewed and unbounded:
    a t test of their sums passed up to 16 % of candidates at the bound at level .05 (`benchmarks/gate.py`). A PASS also needs
    sums within the ratio, so that a few very expensive tasks are not overlooked.
    """
    a_M, b_M = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    units, fewest = int(a_M.size), MIN_COSTS if unit == "tasks" else MIN_SEEDS
    sums = float(b_M.sum() / a_M.sum()) if units and a_M.sum() > 0 else math.nan
    interval = Interval(sums, math.nan, math.nan, units, f"geometric mean over {unit}")
    if units < fewest:
        needed = Needed(tasks=fewest) if unit == "tasks" else Needed(seeds=fewest)
        return untested(f"a statement about costs needs at least {fewest} {unit}", ratio, interval, needed)
    if min(a_M.min(), b_M.min()) <= 0:
        return untested("a ratio needs costs above 0 on both sides", ratio, interval)
    log_M = np.log(b_M / a_M)
    mean, deviation = float(log_M.mean()), float(log_M.std(ddof=1))
    half = float(stats.t.ppf(1 - level, units - 1)) * deviation / math.sqrt(units)
    interval = replace(interval, estimate=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))
    p_kept, p_broken = _student_p(log_M - math.log(ratio))
    decision = _decided(interval, ratio, p_kept, p_broken, level)
    if decision.answer == "PASS" and sums > ratio:
        reason = f"the sums have a ratio of {sums:.2f}, because a few {unit} are far more expensive"
        return replace(decision, answer="INCONCLUSIVE", reason=reason)
    if decision.answer != "INCONCLUSIVE":
        return decision
    gap = abs(mean - math.log(ratio))
    if unit == "seeds":
        return replace(decision, needed=Needed(seeds=seeds_needed(deviation, gap, 2 * level) if gap > 0 else None))
    size = (_quantiles(level) * deviation / gap) ** 2 if gap > 0 else math.inf
    return replace(decision, needed=Needed(tasks=_limited(size)))


def _bounded(values: np.ndarray, bound: float, level: float, reach: float, method: str) -> Decision:
    interval = Interval(
        float(values.mean()),
        lower_limit(values, level, -reach),
        upper_limit(values, level, reach),
        int(values.size),
        method,
    )
    return _decided(interval, bound, p_above(values, bound, -reach), p_below(values, bound, reach), level)


def _student(values: np.ndarray, bound: float, level: float) -> Decision:
    interval = replace(seed_difference_interval(values, 1 - 2 * level), method="t over seeds, paired")
    p_broken, p_kept = _student_p(values - bound)
    return _decided(interval, bound, p_kept, p_broken, level)


def _student_p(values: np.ndarray) -> tuple[float, float]:
    """Return the p values of "the mean is at least 0" and of "the mean is at most 0"."""
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    if error < 1e-12:
        return float(values.mean() >= 0), float(values.mean() <= 0)
    t = float(values.mean()) / error
    return float(stats.t.cdf(t, values.size - 1)), float(stats.t.sf(t, values.size - 1))


def _decided(interval: Interval, bound: float, p_kept: float, p_broken: float, level: float) -> Decision:
    answer: Answer = "PASS" if p_kept <= level else "FAIL" if p_broken <= level else "INCONCLUSIVE"
    return Decision(answer, interval, bound, p_kept, p_broken)


def _quantiles(level: float) -> float:
    return float(stats.norm.ppf(1 - level) + stats.norm.ppf(CHANCE))


def _limited(size: float) -> int | None:
    return math.ceil(size) if size <= MANY else None


def _tasks_needed(values_M: np.ndarray, gap: float, level: float, reach: float) -> int | None:
    """Return the tasks that would decide, at the observed spread.

    The spread includes the made-up value of the limits: values that are all equal may be so by chance. The second bound is
    the number of equal values that is enough for the limits of `bounded` to decide.
    """
    if gap <= 0:
        return None
    variance = float(np.append(values_M, [-reach]).var())
    rare = math.log(level) / math.log1p(-min(gap / (reach + 1.0), 0.999))
    far = float(values_M.mean()) + reach
    if gap < far:
        rare = math.log(level) / math.log1p(-gap / far)
    return _limited(max(_quantiles(level) ** 2 * variance / gap**2, rare))


def _attempts_needed(
    a: Scores, b: Scores, difference_M: np.ndarray, gap: float, level: float
) -> tuple[int | None, bool | None]:
    """Return the attempts at each of these tasks that would decide, and whether any number would.

    Both are None with a single attempt, which does not separate tasks from chance.
    """
    n, m = min(len(row) for row in (*a, *b)), difference_M.size
    if n < 2 or m < 2 or gap <= 0:
        return None, None
    within = float(np.mean([np.var(x, ddof=1) + np.var(y, ddof=1) for x, y in zip(a, b, strict=True)]))
    between = max(0.0, float(difference_M.var(ddof=1)) - within / n)
    room = m * (gap / _quantiles(level)) ** 2 - between
    if room <= 0 or within == 0:
        return None, False
    attempts = _limited(max(within / room, n + 1))
    return attempts, attempts is not None


def _seeds_for_share(share: float, of: int, most: float, level: float) -> int | None:
    """Return the smallest number of seeds, above the present one, that decides if the share stays as observed."""
    for n in range(of + 1, MAX_SEEDS):
        count = round(share * n)
        if stats.binom.cdf(count, n, most) <= level or stats.binom.sf(count - 1, n, most) <= level:
            return n
    return None
