"""What a claim comes to: one verdict from paired seed differences, looked at 8, 16 and 24 seeds.

Looks at .02 each give 4.6 % false alarms in all (simulated by `benchmarks/intervals.py`), so every interval here is one of
98 %. A verdict stands at the first look that decides it; further seeds are shown and change no word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from userrl_core.measure.interval import Interval, t_interval
from userrl_core.measure.recipes import deviation_limit, seeds_needed

LOOKS = (8, 16, 24)
"""Numbers of seeds at which a claim is looked at."""
LEVEL = 0.98

Word = Literal["reproduced", "no difference that matters", "the reverse", "undecided"]


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """word: what is said. seeds: how many there are. interval: 98 %, over the seeds of the look; of all of them before the first.

    p: Student's t, two-sided, nan below two seeds. needed: seeds that would decide it, at the deviation seen and at its
    upper 80 % limit; None where it is decided or nothing can be said yet.
    """

    word: Word
    seeds: int
    interval: Interval | None
    p: float
    needed: tuple[int, int] | None = None

    def turns(self, other: ClaimVerdict) -> bool:
        """Return whether the difference has the other sign there."""
        own, theirs = self.interval, other.interval
        return own is not None and theirs is not None and own.estimate * theirs.estimate < 0

    def __str__(self) -> str:
        if self.word != "undecided":
            return self.word
        if self.seeds < LOOKS[0]:
            return f"undecided ({self.seeds} of {LOOKS[0]} seeds)"
        most = "" if self.needed is None else f"; about {self.needed[0]:,} would decide it, up to {self.needed[1]:,}"
        return f"undecided after {self.seeds} seeds{most}"


def verdict(differences: Sequence[float], delta: float) -> ClaimVerdict:
    """Of the claimed direction's differences, one a seed in the order of the seeds. delta: the least that matters, above 0."""
    found = _look(differences, delta)
    for seeds in (look for look in LOOKS if look <= len(differences)):
        found = _look(differences[:seeds], delta)
        if found.word != "undecided":
            break
    return found


def word(low: float, high: float, delta: float) -> Word:
    """What an interval [low, high] of the difference says."""
    if low > 0 and high >= delta:
        return "reproduced"
    if -delta < low and high < delta:
        return "no difference that matters"
    if high < 0 and low <= -delta:
        return "the reverse"
    return "undecided"


def _look(differences: Sequence[float], delta: float) -> ClaimVerdict:
    """At these seeds, whatever their number; never more than undecided below the first look."""
    difference_S = np.array(differences, dtype=float)
    if difference_S.size < 2:
        return ClaimVerdict("undecided", difference_S.size, None, math.nan)
    interval = t_interval(difference_S, LEVEL)
    deviation = float(difference_S.std(ddof=1))
    p = float(stats.ttest_1samp(difference_S, 0).pvalue) if deviation > 0 else float(interval.estimate == 0)
    if difference_S.size < LOOKS[0]:
        return ClaimVerdict("undecided", difference_S.size, interval, p)
    said = word(interval.low, interval.high, delta)
    # Whichever needs fewer: to see the difference that was seen, or to show that it is smaller than delta.
    effect = max(abs(interval.estimate), delta - abs(interval.estimate))
    high = deviation_limit(deviation, difference_S.size)
    needed = (seeds_needed(deviation, effect), seeds_needed(high, effect)) if said == "undecided" else None
    return ClaimVerdict(said, difference_S.size, interval, p, needed)
