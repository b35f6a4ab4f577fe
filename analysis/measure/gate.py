"""The answer to one rule of a release gate: PASS, FAIL or INCONCLUSIVE, and the data that would decide an open question.

A rule passes if the data rule out that it is broken, and fails if they rule out that it is kept. Both tests are one-sided at
the rule's level. A gate passes only if all rules pass, so the chance that it passes a candidate that breaks any rule is at
most that level. The chances of a false FAIL add up over the rules.

The unit of a question about checkpoints is the task: attempts at a task are averaged and never split. Variants of one task
may be joined in clusters, and then the cluster is the unit. Tests over tasks or clusters are those of `bounded`, because a t
test passes too often where nearly all tasks have the same score on both sides, or where few tasks are much more expensive.
The unit of a question about recipes is the seed, with Student's t over the seeds whose runs held on both sides. A t test over
all seeds is wrong where runs collapse rarely (`lab/benchmarks/gate.py`), so the share of collapsed runs has its own test.

Array suffixes: M tasks, C clusters, S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from analysis.measure.bounded import CHANCE, MANY, limit, p_above, p_below, units_to_decide
from analysis.measure.checkpoints import Scores, variances
from analysis.measure.interval import MIN_SEEDS, Interval, seed_difference_interval, share_interval
from analysis.measure.recipes import MAX_SEEDS, seeds_needed

Answer = Literal["PASS", "FAIL", "INCONCLUSIVE"]
FARTHEST = 1e9
"""Largest ratio of costs that is searched for a limit."""


@dataclass(frozen=True, slots=True)
class Needed:
    """The sizes that would decide a rule; each of them alone is enough. None: no size of this kind is known to be enough.

    attempts_help: False if no number of attempts at the present tasks is enough.
    """

    tasks: int | None = None
    clusters: int | None = None
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
    a: Scores,
    b: Scores,
    bound: float,
    level: float,
    *,
    reach: float = 1.0,
    averaged: bool = True,
    clusters: Sequence[str] | None = None,
) -> Decision:
    """Test whether B minus A is above the bound, paired over tasks.

    a[i], b[i]: values of the attempts at task i; their means are compared. reach: the largest difference that a task can
    have, the range of the score. averaged: False if a value is not a mean over attempts (pass^k), so that nothing is said
    about more attempts. clusters: the cluster of each task.
    """
    difference_M = np.array([np.mean(y) - np.mean(x) for x, y in zip(a, b, strict=True)])
    sizes_C, difference_C = _totals(clusters, np.ones_like(difference_M), difference_M)
    mean, largest = float(difference_M.mean()), float(sizes_C.max())
    question = _Question(
        lambda x: difference_C - x * sizes_C,
        lambda x: (-largest * (reach + x), largest * (reach - x)),
    )
    low, high = limit(question.p_kept, level, mean, -reach), limit(question.p_broken, level, mean, reach)
    interval = Interval(mean, low, high, int(sizes_C.size), f"Gaffke's limits over {_unit(clusters)}, paired")
    decision = question.answered(interval, bound, level, clustered=clusters is not None)
    if decision.needed is None or not averaged or clusters is not None:
        return decision
    attempts, help_ = _attempts_needed(a, b, abs(mean - bound), level)
    return replace(decision, needed=replace(decision.needed, attempts=attempts, attempts_help=help_))


def ratio_of_tasks(
    a: Sequence[float],
    b: Sequence[float],
    ratio: float,
    level: float,
    caps: tuple[float, float],
    *,
    clusters: Sequence[str] | None = None,
) -> Decision:
    """Test whether B costs at most `ratio` times what A costs in total, paired over tasks.

    a[i], b[i]: costs of task i, the means over its attempts. caps: the largest possible cost of a conversation of A and of
    B. clusters: the cluster of each task. The tested values are ratio * a - b, whose mean is at least 0 if the rule is kept.
    Without the caps no test keeps its level: a few tasks that are much more expensive may be absent from the sample.
    """
    a_M, b_M = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a_M.sum() <= 0:
        return untested("the tasks cost A nothing, so there is no ratio", ratio)
    sizes_C, a_C, b_C = _totals(clusters, np.ones_like(a_M), a_M / a_M.mean(), b_M / a_M.mean())
    most_a, most_b = (float(sizes_C.max()) * cap / float(a_M.mean()) for cap in caps)
    question = _Question(lambda x: x * a_C - b_C, lambda x: (-most_b, x * most_a))
    estimate = float(b_M.sum() / a_M.sum())
    low, high = limit(question.p_broken, level, estimate, 0.0), _upper(question.p_kept, level, estimate)
    interval = Interval(
        estimate, low, high, int(sizes_C.size), f"Gaffke's limits over {_unit(clusters)}, of the totals"
    )
    return question.answered(interval, ratio, level, clustered=clusters is not None)


def difference_of_seeds(difference_S: np.ndarray, bound: float, level: float, *, of: int | None = None) -> Decision:
    """Test whether B minus A is above the bound, paired over seeds whose runs held on both sides.

    of: seeds of which these held; by default all. It scales the needed seeds.
    """
    if difference_S.size < MIN_SEEDS:
        return _few_seeds(difference_S, bound, of)
    interval = replace(seed_difference_interval(difference_S, 1 - 2 * level), method="t over seeds, paired")
    return _student(difference_S - bound, interval, bound, level, of)


def ratio_of_seeds(a_S: np.ndarray, b_S: np.ndarray, ratio: float, level: float, *, of: int | None = None) -> Decision:
    """Test whether B costs at most `ratio` times what A costs in total, by Student's t of ratio * a - b over seeds.

    a_S, b_S: mean costs of runs that held on both sides. of: as in `difference_of_seeds`.
    """
    if a_S.size and a_S.sum() <= 0:
        return untested("the tasks cost A nothing, so there is no ratio", ratio)
    if a_S.size < MIN_SEEDS:
        return _few_seeds(b_S / a_S, ratio, of)
    estimate = float(b_S.sum() / a_S.sum())
    a_S, b_S = a_S / a_S.mean(), b_S / a_S.mean()
    low = limit(lambda x: _student_p(x * a_S - b_S)[0], level, estimate, 0.0)
    high = _upper(lambda x: _student_p(x * a_S - b_S)[1], level, estimate)
    interval = Interval(estimate, low, high, int(a_S.size), "t over seeds, of the totals")
    return _student(ratio * a_S - b_S, interval, ratio, level, of)


def share_at_most(count: int, of: int, bound: float, level: float) -> Decision:
    """Test whether a share, such as the share of collapsed seeds, is at most `bound`, by the exact binomial test."""
    p_kept = float(stats.binom.cdf(count, of, bound))
    p_broken = float(stats.binom.sf(count - 1, of, bound))
    interval = share_interval(count, of, 1 - 2 * level)
    decision = _decided(interval, bound, p_kept, p_broken, level)
    if decision.answer != "INCONCLUSIVE":
        return decision
    return replace(decision, needed=Needed(seeds=_seeds_for_share(count / max(of, 1), of, bound, level)))


@dataclass(frozen=True, slots=True)
class _Question:
    """A rule as a function of its bound x.

    values: their mean is above 0 if the rule is kept at x. ends: their smallest and largest possible value.
    """

    values: Callable[[float], np.ndarray]
    ends: Callable[[float], tuple[float, float]]

    def p_kept(self, x: float) -> float:
        """Return the p value of "the rule is broken"."""
        return p_above(self.values(x), 0.0, self.ends(x)[0])

    def p_broken(self, x: float) -> float:
        """Return the p value of "the rule is kept"."""
        return p_below(self.values(x), 0.0, self.ends(x)[1])

    def answered(self, interval: Interval, bound: float, level: float, *, clustered: bool) -> Decision:
        """Return the answer at the bound, with the units that would decide an open question."""
        decision = _decided(interval, bound, self.p_kept(bound), self.p_broken(bound), level)
        if decision.answer != "INCONCLUSIVE":
            return decision
        units = units_to_decide(self.values(bound), *self.ends(bound), level)
        return replace(decision, needed=Needed(clusters=units) if clustered else Needed(tasks=units))


def _totals(clusters: Sequence[str] | None, *columns_M: np.ndarray) -> list[np.ndarray]:
    """Return the sum of each column by cluster; the columns themselves without clusters."""
    if clusters is None:
        return list(columns_M)
    of_M = np.unique(np.asarray(clusters), return_inverse=True)[1]
    return [np.bincount(of_M, weights=column_M) for column_M in columns_M]


def _unit(clusters: Sequence[str] | None) -> str:
    return "tasks" if clusters is None else "clusters of tasks"


def _upper(p: Callable[[float], float], level: float, estimate: float) -> float:
    """Return the upper limit of a ratio, or infinity if it is above `FARTHEST`."""
    outside = max(2 * estimate, 1.0)
    while p(outside) > level:
        outside *= 2
        if outside > FARTHEST:
            return math.inf
    return limit(p, level, estimate, outside)


def _few_seeds(values_S: np.ndarray, bound: float, of: int | None) -> Decision:
    """Return INCONCLUSIVE for fewer than `MIN_SEEDS` seeds that held."""
    seed_count = int(values_S.size)
    interval = Interval(
        float(values_S.mean()) if seed_count else math.nan,
        math.nan,
        math.nan,
        seed_count,
        "values",
        tuple(map(float, values_S)),
    )
    which = "that both sides have" if seed_count == (of or seed_count) else "whose runs held on both sides"
    reason = f"a statement about recipes needs at least {MIN_SEEDS} seeds {which}"
    return untested(reason, bound, interval, Needed(seeds=_scaled(MIN_SEEDS, seed_count, of)))


def _student(values_S: np.ndarray, interval: Interval, bound: float, level: float, of: int | None) -> Decision:
    """Return the answer of Student's t. values_S: their mean is above 0 if the rule is kept."""
    p_broken, p_kept = _student_p(values_S)
    decision = _decided(interval, bound, p_kept, p_broken, level)
    if decision.answer != "INCONCLUSIVE":
        return decision
    gap = abs(float(values_S.mean()))
    seeds = seeds_needed(float(values_S.std(ddof=1)), gap, 2 * level) if gap > 0 else MAX_SEEDS
    return replace(decision, needed=Needed(seeds=_scaled(seeds, values_S.size, of) if seeds < MAX_SEEDS else None))


def _scaled(seeds: int, seed_count: int, of: int | None) -> int:
    """Return the seeds to train if the same share of them holds; `seeds` itself if none held."""
    return math.ceil(seeds * (of or seed_count) / seed_count) if seed_count else seeds


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


def _attempts_needed(a: Scores, b: Scores, gap: float, level: float) -> tuple[int | None, bool | None]:
    """Return the attempts at each of these tasks that would decide, and whether any number would.

    Both are None with a single attempt, which does not separate tasks from chance.
    """
    n, m = min(len(row) for row in (*a, *b)), len(a)
    if n < 2 or m < 2 or gap <= 0:
        return None, None
    between, within = variances(a, b)
    room = m * (gap / _quantiles(level)) ** 2 - between
    if room <= 0 or within == 0:
        return None, False
    attempts = _limited(max(within / room, n + 1))
    return attempts, attempts is not None


def _seeds_for_share(share: float, of: int, bound: float, level: float) -> int | None:
    """Return the smallest number of seeds, above the present one, that decides if the share stays as observed."""
    for n in range(of + 1, MAX_SEEDS):
        count = round(share * n)
        if stats.binom.cdf(count, n, bound) <= level or stats.binom.sf(count - 1, n, bound) <= level:
            return n
    return None
