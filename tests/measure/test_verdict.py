"""Verdicts against recorded numbers: the ten published seeds of the fork, and the words of every side of the limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from userrl_core.measure.recipes import deviation_limit, seeds_needed
from userrl_core.measure.verdict import verdict, word

SHORT = [0.15, 0.16, 0.00, 0.16, 0.16, 0.03, 0.10, 0.22, 0.06, 0.00]
LONGER = [0.62, 0.34, 0.28, 0.62, 0.29, 0.40, 0.26, 0.53, 0.13, 0.34]
"""Depth 3 at the last step, seeds 1 to 10 (docs/results.md, "Ten seeds")."""
FORK = [longer - short for short, longer in zip(SHORT, LONGER, strict=True)]


def test_the_forks_ten_seeds_are_a_verdict_of_the_first_eight() -> None:
    found = verdict(FORK, 0.05)
    assert (found.word, found.seeds, str(found)) == ("reproduced", 8, "reproduced")
    assert found.interval is not None
    assert found.interval.estimate == pytest.approx(0.295, abs=1e-12)
    assert (found.interval.low, found.interval.high) == pytest.approx(
        (0.15472643519665838, 0.43527356480334156), abs=1e-12
    )
    assert found.p == pytest.approx(stats.ttest_rel(LONGER[:8], SHORT[:8]).pvalue, rel=1e-12)
    assert verdict([-each for each in FORK], 0.05).word == "the reverse"


def test_fewer_than_eight_seeds_decide_nothing_however_clear_they_are() -> None:
    found = verdict(FORK[:7], 0.05)
    assert str(found) == "undecided (7 of 8 seeds)"
    assert found.interval is not None
    assert found.interval.low > 0
    assert str(verdict([], 0.05)) == "undecided (0 of 8 seeds)"
    assert verdict([0.5], 0.05).interval is None


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.001, 0.05, "reproduced"),
        (0.0, 0.06, "undecided"),
        (0.01, 0.049, "no difference that matters"),
        (-0.049, 0.049, "no difference that matters"),
        (-0.05, 0.04, "undecided"),
        (-0.05, -0.001, "the reverse"),
        (-0.049, -0.001, "no difference that matters"),
        (-0.06, 0.0, "undecided"),
        (-0.2, 0.2, "undecided"),
    ],
)
def test_the_words_of_limits(low: float, high: float, said: str) -> None:
    assert word(low, high, 0.05) == said


def test_an_undecided_claim_says_how_many_seeds_would_decide_it() -> None:
    differences = [0.10, -0.06, 0.08, -0.04, 0.12, 0.02, -0.08, 0.06]
    found = verdict(differences, 0.05)
    deviation = float(np.std(differences, ddof=1))
    effect = max(0.025, 0.05 - 0.025)
    assert found.word == "undecided"
    assert found.needed == (seeds_needed(deviation, effect), seeds_needed(deviation_limit(deviation, 8), effect))
    assert found.needed == (77, 138)
    assert str(found) == "undecided after 8 seeds; about 77 would decide it, up to 138"


def test_a_verdict_stands_at_the_first_look_that_decides_it() -> None:
    clear, against = [0.2, 0.21] * 4, [-0.5, 0.5] * 4
    assert verdict([*clear, *against], 0.05).seeds == 8
    assert verdict([*against, *clear, *clear], 0.05).seeds == 24
    later = verdict([*against, *clear], 0.05)
    assert (later.word, later.seeds) == ("undecided", 16)


def test_seeds_that_agree_to_the_last_digit_are_a_verdict_too() -> None:
    assert verdict([0.0] * 8, 0.05).word == "no difference that matters"
    found = verdict([0.75] * 8, 0.05)
    assert (found.word, found.p) == ("reproduced", 0.0)
    assert not math.isnan(verdict([0.0] * 8, 0.05).p)
