"""The verdict on a claim: two parts, tested after 8, 16 and 24 seeds.

Outcomes with collapses have two parts. The first compares the shares of collapsed runs (Fisher's exact test,
Newcombe's limits). The second compares the scores of the runs that did not collapse (Welch's t). It is conditional on
not collapsing, so the shares are always printed with it.

A look tests at .02 in total: each of two parts at .01, a single part at .02. Three looks give at most 4.6 % false alarms
(data/claims/one-sided-collapse.md). The first look that decides gives the verdict. Further seeds are shown and do not change it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy

from analysis.measure.interval import MIN_SEEDS, Interval, newcombe, t_interval, welch
from analysis.measure.recipes import seeds_needed, welch_seeds_needed

LOOKS = (8, 16, 24)
"""Numbers of seeds at which a claim is tested."""
ALPHA = 0.02
"""Chance of a false alarm at one look. The parts of a claim share it."""
POWER = 0.8
"""Power at which a number of seeds counts as enough to decide."""

Word = Literal[
    "reproduced",
    "above zero, delta not excluded",
    "no difference that matters",
    "below zero, delta not excluded",
    "the reverse",
    "mixed",
    "undecided",
]
Primary = Literal["welch", "paired"]
"""The interval that decides about scores: from independent runs, or from paired seed differences."""

_DIRECTION: dict[Word, int] = {
    "reproduced": 1,
    "above zero, delta not excluded": 1,
    "below zero, delta not excluded": -1,
    "the reverse": -1,
}


@dataclass(frozen=True, slots=True)
class ArmOutcomes:
    """The runs of one arm, in the order of their seeds.

    values: the metric by run, None if not measured. collapsed: whether the run collapsed, which includes crashed runs.
    """

    values: tuple[float | None, ...]
    collapsed: tuple[bool, ...]

    def first(self, seeds: int) -> ArmOutcomes:
        """Return the outcomes of the first runs only."""
        return ArmOutcomes(self.values[:seeds], self.collapsed[:seeds])

    @property
    def held(self) -> np.ndarray:
        """Return the values of the runs that did not collapse."""
        pairs = zip(self.values, self.collapsed, strict=True)
        return np.array([value for value, fell in pairs if value is not None and not fell], dtype=float)

    @property
    def measured(self) -> np.ndarray:
        """Return the values of all runs."""
        return np.array([value for value in self.values if value is not None], dtype=float)


@dataclass(frozen=True, slots=True)
class Shares:
    """The collapsed runs of both arms. more, than: collapsed runs and all runs. interval: of the difference of the shares."""

    more: tuple[int, int]
    than: tuple[int, int]
    interval: Interval
    p: float
    word: Word

    def __str__(self) -> str:
        return f"{self.more[0]} of {self.more[1]} against {self.than[0]} of {self.than[1]}"


@dataclass(frozen=True, slots=True)
class Scores:
    """The difference of the scores. interval: the primary one. welch, paired: both intervals; paired is None if too
    few pairs are left.

    p: of the primary test. level: of the intervals. held: whether collapsed runs were left out. runs: compared runs by arm.
    """

    interval: Interval
    welch: Interval
    paired: Interval | None
    p: float
    level: float
    held: bool
    runs: tuple[int, int]
    word: Word


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The verdict at one look.

    seeds: pairs of the look; all pairs before the first look. shares: None if collapses do not count for the metric.
    scores: None if only the shares are claimed, or an arm has fewer than four runs left. needed: seeds that would
    decide with 80 % power, at most the seeds of the last look; None if decided or if no remaining look would decide.
    """

    word: Word
    seeds: int
    shares: Shares | None
    scores: Scores | None
    needed: int | None = None

    @property
    def interval(self) -> Interval | None:
        """Return the interval of the difference of the scores if it exists, else of the shares."""
        if self.scores is not None:
            return self.scores.interval
        return None if self.shares is None else self.shares.interval

    @property
    def p(self) -> float:
        """Return the smaller p of the parts times their number (Bonferroni), or nan without a test."""
        p_values = [part.p for part in (self.shares, self.scores) if part is not None and not math.isnan(part.p)]
        return min(1.0, min(p_values) * len(p_values)) if p_values else math.nan

    @property
    def continues(self) -> int | None:
        """Return the next look of an undecided claim if a later look can decide it, else None."""
        if self.word != "undecided" or self.needed is None:
            return None
        return next((look for look in LOOKS if look > self.seeds), None)

    def turns(self, other: ClaimVerdict) -> bool:
        """Return whether the difference has the opposite sign in the other verdict."""
        mine, theirs = self.interval, other.interval
        return mine is not None and theirs is not None and mine.estimate * theirs.estimate < 0

    def __str__(self) -> str:
        if self.word != "undecided":
            return self.word
        if self.seeds < LOOKS[0]:
            return f"undecided ({self.seeds} of {LOOKS[0]} seeds)"
        if self.needed is not None:
            return f"undecided after {self.seeds} seeds; about {self.needed} would decide it"
        if self.seeds < LOOKS[-1]:
            return f"undecided after {self.seeds} seeds; {LOOKS[-1]} are not expected to decide it"
        return f"undecided after {self.seeds} seeds, the last look"


def verdict(
    more: ArmOutcomes,
    than: ArmOutcomes,
    delta: float,
    *,
    parts: Literal["both", "shares", "scores"] = "both",
    primary: Primary = "welch",
    more_is_collapse: bool = False,
) -> ClaimVerdict:
    """Return the verdict on `more` minus `than`, at the first look that decides.

    more, than: the same seeds in the same order. delta: smallest difference of scores that matters, above 0. parts:
    the tested parts. more_is_collapse: the claim says that `more` collapses more often; otherwise that it collapses
    less often.
    """
    seeds = len(more.values)

    def look(n: int) -> ClaimVerdict:
        return _look(more.first(n), than.first(n), delta, parts, primary, more_is_collapse)

    latest = look(seeds)
    for n in (look for look in LOOKS if look <= seeds):
        latest = look(n)
        if latest.word != "undecided":
            break
    return latest


def score_word(interval: Interval, delta: float) -> Word:
    """Return the word for an interval of the difference of scores."""
    low, high = interval.low, interval.high
    if -delta < low and high < delta:
        return "no difference that matters"
    if low > 0:
        return "reproduced" if interval.estimate >= delta else "above zero, delta not excluded"
    if high < 0:
        return "the reverse" if interval.estimate <= -delta else "below zero, delta not excluded"
    return "undecided"


def combined(shares: Word, scores: Word | None) -> Word:
    """Return the verdict of both parts. One decided part is enough; two decided parts in opposite directions are mixed."""
    if scores is None or scores == "undecided":
        return shares
    if shares == "undecided":
        return scores
    if _DIRECTION.get(scores, 0) * _DIRECTION.get(shares, 0) < 0:
        return "mixed"
    return shares


def compare_shares(more: tuple[int, int], than: tuple[int, int], alpha: float, *, more_is_collapse: bool) -> Shares:
    """Compare two shares of collapsed runs, each a count and a total. They are never declared equal."""
    p = float(scipy.stats.fisher_exact([[more[0], more[1] - more[0]], [than[0], than[1] - than[0]]]).pvalue)
    interval = newcombe(more, than, 1 - alpha)
    claimed = (interval.estimate > 0) == more_is_collapse
    conclusion: Word = "undecided" if p >= alpha else "reproduced" if claimed else "the reverse"
    return Shares(more, than, interval, p, conclusion)


def _look(
    more: ArmOutcomes, than: ArmOutcomes, delta: float, parts: str, primary: Primary, more_is_collapse: bool
) -> ClaimVerdict:
    """Return the verdict on these seeds, for any number of them. Below the first look it is undecided."""
    seeds = len(more.values)
    alpha = ALPHA / 2 if parts == "both" else ALPHA
    shares = scores = None
    if parts != "scores" and seeds:
        counts = [(sum(arm.collapsed), seeds) for arm in (more, than)]
        shares = compare_shares(counts[0], counts[1], alpha, more_is_collapse=more_is_collapse)
    if parts != "shares":
        scores = _scores(more, than, delta, alpha, primary, without_collapsed=parts == "both")
    if seeds < LOOKS[0]:
        return ClaimVerdict("undecided", seeds, shares, scores)
    conclusions = [part.word for part in (shares, scores) if part is not None]
    conclusion = (
        combined(conclusions[0], conclusions[1])
        if len(conclusions) == 2
        else conclusions[0]
        if conclusions
        else "undecided"
    )
    needed = _needed(shares, scores, more, than, delta, alpha, seeds) if conclusion == "undecided" else None
    return ClaimVerdict(conclusion, seeds, shares, scores, needed)


def _scores(
    more: ArmOutcomes, than: ArmOutcomes, delta: float, alpha: float, primary: Primary, *, without_collapsed: bool
) -> Scores | None:
    """Return the difference of the scores, or None if an arm has fewer than `MIN_SEEDS` runs."""
    a, b = (more.held, than.held) if without_collapsed else (more.measured, than.measured)
    runs = (len(a), len(b))
    if min(runs) < MIN_SEEDS:
        return None
    rows = zip(more.values, than.values, more.collapsed, than.collapsed, strict=True)
    pairs = [
        x - y
        for x, y, fell, fell_too in rows
        if x is not None and y is not None and not (without_collapsed and (fell or fell_too))
    ]
    independent = welch(a, b, 1 - alpha)
    paired = t_interval(np.array(pairs), 1 - alpha) if len(pairs) >= MIN_SEEDS else None
    interval = independent if primary == "welch" or paired is None else paired
    p = _p(a, b) if primary == "welch" or paired is None else _p_paired(np.array(pairs))
    return Scores(interval, independent, paired, p, 1 - alpha, without_collapsed, runs, score_word(interval, delta))


def _p(a: np.ndarray, b: np.ndarray) -> float:
    if a.std() + b.std() < 1e-12:
        return float(a.mean() == b.mean())
    return float(scipy.stats.ttest_ind(a, b, equal_var=False).pvalue)


def _p_paired(differences: np.ndarray) -> float:
    if differences.std() < 1e-12:
        return float(differences.mean() == 0)
    return float(scipy.stats.ttest_1samp(differences, 0).pvalue)


def _needed(
    shares: Shares | None,
    scores: Scores | None,
    more: ArmOutcomes,
    than: ArmOutcomes,
    delta: float,
    alpha: float,
    seeds: int,
) -> int | None:
    """Return the seeds that would decide a part at the observed shares and deviations, or None if beyond the last look."""
    seed_counts = []
    if shares is not None and shares.interval.estimate:
        seed_counts += [look for look in LOOKS if look > seeds and _power(shares, look, alpha) >= POWER][:1]
    if scores is not None:
        # Whichever needs fewer: to see the difference that was seen, or to show that it is smaller than delta.
        effect = max(abs(scores.interval.estimate), delta - abs(scores.interval.estimate))
        a, b = (more.held, than.held) if scores.held else (more.measured, than.measured)
        if scores.interval is scores.paired:
            pairs = scores.runs[0]
            half = (scores.interval.high - scores.interval.low) / 2
            deviation = half * math.sqrt(pairs) / float(scipy.stats.t.ppf(1 - alpha / 2, pairs - 1))
            n = seeds_needed(deviation, effect, alpha)
        else:
            n = welch_seeds_needed(float(a.std(ddof=1)), float(b.std(ddof=1)), effect, alpha)
        # Of the seeds of an arm, only those that hold count.
        seed_counts.append(math.ceil(n * seeds / min(scores.runs)))
    return min((n for n in seed_counts if seeds < n <= LOOKS[-1]), default=None)


def _power(shares: Shares, seeds: int, alpha: float) -> float:
    """Return the chance that Fisher's test decides with this number of seeds, at the observed shares."""
    chances = [
        scipy.stats.binom.pmf(np.arange(seeds + 1), seeds, count / of) for count, of in (shares.more, shares.than)
    ]
    decided = [
        (i, j)
        for i in range(seeds + 1)
        for j in range(seeds + 1)
        if chances[0][i] * chances[1][j] > 1e-9
        and scipy.stats.fisher_exact([[i, seeds - i], [j, seeds - j]]).pvalue < alpha
    ]
    return float(sum(chances[0][i] * chances[1][j] for i, j in decided))
