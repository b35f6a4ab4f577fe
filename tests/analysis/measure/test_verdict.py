"""Verdicts of two parts: the share of collapsed runs by Fisher's test, and the scores of the runs that held by Welch's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from analysis.measure.collapse import far_below
from analysis.measure.collapse_rule import FALL_ERRORS, MIN_FALL
from analysis.measure.interval import Interval, newcombe, score_interval, welch
from analysis.measure.verdict import ArmOutcomes, Word, combined, score_word, verdict
from warehouse import views

SHORT = [0.15, 0.16, 0.00, 0.16, 0.16, 0.03, 0.10, 0.22, 0.06, 0.00]
LONGER = [0.62, 0.34, 0.28, 0.62, 0.29, 0.40, 0.26, 0.53, 0.13, 0.34]
"""Depth 3 at the last step, seeds 1 to 10 (data/results/README.md, "Ten seeds")."""
STEADY = [0.84, 0.86, 0.85, 0.83, 0.87, 0.85, 0.84, 0.86]


def arm(values: Sequence[float], collapsed: int = 0) -> ArmOutcomes:
    """The last `collapsed` runs collapsed."""
    kept = len(values) - collapsed
    return ArmOutcomes(tuple(values), tuple(n >= kept for n in range(len(values))))


def interval(low: float, high: float) -> Interval:
    return Interval((low + high) / 2, low, high, 8, "Welch")


def test_the_forks_ten_seeds_are_a_verdict_of_the_first_eight() -> None:
    found = verdict(arm(LONGER), arm(SHORT), 0.05)
    assert (found.word, found.seeds, str(found)) == ("reproduced", 8, "reproduced")
    assert found.scores is not None
    expected = stats.ttest_ind(LONGER[:8], SHORT[:8], equal_var=False)
    limits = expected.confidence_interval(0.99)
    assert (found.scores.welch.low, found.scores.welch.high) == pytest.approx((limits.low, limits.high), abs=1e-12)
    assert found.scores.p == pytest.approx(expected.pvalue, rel=1e-12)
    assert found.scores.paired is not None
    assert found.scores.paired.estimate == pytest.approx(0.295, abs=1e-12)
    assert verdict(arm(SHORT), arm(LONGER), 0.05).word == "the reverse"


def test_the_primary_interval_is_the_one_named_beforehand() -> None:
    found = verdict(arm(LONGER), arm(SHORT), 0.05, primary="paired")
    assert found.scores is not None
    assert found.scores.interval is found.scores.paired
    assert found.scores.p == pytest.approx(stats.ttest_rel(LONGER[:8], SHORT[:8]).pvalue)


def test_fewer_than_eight_seeds_decide_nothing_however_clear_they_are() -> None:
    assert str(verdict(arm(LONGER[:7]), arm(SHORT[:7]), 0.05)) == "undecided (7 of 8 seeds)"
    assert str(verdict(arm([]), arm([]), 0.05)) == "undecided (0 of 8 seeds)"
    assert verdict(arm([0.5]), arm([0.1]), 0.05).scores is None


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.04, 0.08, "reproduced"),
        (0.001, 0.07, "above zero, delta not excluded"),
        (0.0, 0.06, "undecided"),
        (0.01, 0.049, "no difference that matters"),
        (-0.049, 0.049, "no difference that matters"),
        (-0.05, 0.04, "undecided"),
        (-0.07, -0.001, "below zero, delta not excluded"),
        (-0.2, -0.01, "the reverse"),
        (-0.2, 0.2, "undecided"),
    ],
)
def test_the_words_of_limits(low: float, high: float, said: str) -> None:
    assert score_word(interval(low, high), 0.05) == said


@pytest.mark.parametrize(
    ("shares", "scores", "both"),
    [
        ("reproduced", "reproduced", "reproduced"),
        ("undecided", "reproduced", "reproduced"),
        ("reproduced", "undecided", "reproduced"),
        ("reproduced", None, "reproduced"),
        ("reproduced", "the reverse", "mixed"),
        ("the reverse", "above zero, delta not excluded", "mixed"),
        ("the reverse", "no difference that matters", "the reverse"),
        ("undecided", "no difference that matters", "no difference that matters"),
        ("undecided", "undecided", "undecided"),
    ],
)
def test_the_verdict_of_both_parts(shares: Word, scores: Word | None, both: Word) -> None:
    assert combined(shares, scores) == both


def test_an_arm_that_scores_more_and_collapses_more_is_mixed() -> None:
    high = [0.95, 0.96, 0.94, 0.95, *[0.1] * 4, 0.95, 0.94, 0.96, 0.95, *[0.1] * 4]
    collapsed = tuple(value < 0.5 for value in high)
    found = verdict(ArmOutcomes(tuple(high), collapsed), arm([*STEADY, *STEADY]), 0.05)
    assert found.shares is not None
    assert found.scores is not None
    assert (found.shares.word, found.scores.word, found.word) == ("undecided", "reproduced", "reproduced")
    more = verdict(ArmOutcomes(tuple(high) * 2, collapsed * 2), arm(STEADY * 4), 0.05)
    assert more.word == "reproduced", "the first look that decides stands"
    crashed = [0.95, 0.96, 0.94, 0.95, *[0.1] * 12]
    at_16 = ArmOutcomes(tuple(crashed), tuple(value < 0.5 for value in crashed))
    later = verdict(at_16, arm([*STEADY, *[0.86, 0.70, 0.98, 0.99] * 2]), 0.05)
    assert (later.shares and later.shares.word) == "the reverse" or later.word == "reproduced"


def test_two_arms_without_a_collapse_are_never_declared_equal() -> None:
    found = verdict(arm([0.5] * 8), arm([0.5] * 8), 0.05, parts="shares", more_is_collapse=True)
    assert found.word == "undecided"
    assert found.shares is not None
    assert (found.shares.interval.low, found.shares.interval.high) == pytest.approx((-0.40, 0.40), abs=0.005)


@pytest.mark.parametrize(
    ("more", "of", "estimate", "low", "high"),
    [(5, 8, 0.625, 0.083, 0.886), (9, 16, 0.562, 0.196, 0.797), (8, 8, 1.0, 0.429, 1.0)],
)
def test_newcombes_limits(more: int, of: int, estimate: float, low: float, high: float) -> None:
    found = newcombe((more, of), (0, of), 0.98)
    assert (found.estimate, found.low, found.high) == pytest.approx((estimate, low, high), abs=0.02)


def test_a_share_is_decided_by_fishers_test() -> None:
    values = [0.5] * 8
    found = verdict(arm(values, 5), arm(values), 0.05, parts="shares", more_is_collapse=True)
    assert found.word == "undecided"
    assert found.p == pytest.approx(0.0256, abs=1e-4)
    assert (found.needed, found.continues) == (16, 16)
    assert verdict(arm(values, 8), arm(values), 0.05, parts="shares", more_is_collapse=True).word == "reproduced"
    assert verdict(arm(values, 8), arm(values), 0.05, parts="shares").word == "the reverse"


def test_seeds_that_would_decide_are_of_the_rules_level_and_only_where_a_look_is_left() -> None:
    a = [0.10, -0.06, 0.08, -0.04, 0.12, 0.02, -0.08, 0.06]
    far = verdict(arm(a), arm([0.0] * 8), 0.05)
    assert (far.needed, far.continues) == (None, None)
    assert str(far) == "undecided after 8 seeds; 24 are not expected to decide it"
    near = verdict(arm([value + 0.045 for value in a]), arm([0.0] * 8), 0.05)
    assert near.needed is None or near.needed <= 24
    last = verdict(arm(a * 3), arm([0.0] * 24), 0.05)
    assert (str(last), last.needed) == ("undecided after 24 seeds, the last look", None)


def test_a_verdict_stands_at_the_first_look_that_decides_it() -> None:
    clear, against, nothing = [0.2, 0.21] * 4, [-0.5, 0.5] * 4, [0.0] * 8
    assert verdict(arm([*clear, *against]), arm(nothing * 2), 0.05).seeds == 8
    later = verdict(arm([*against, *clear]), arm(nothing * 2), 0.05)
    assert (later.word, later.seeds) == ("undecided", 16)


def test_a_crash_is_a_collapse_and_leaves_the_scores_of_the_rest() -> None:
    found = verdict(arm([*STEADY[:7], 0.0], 1), arm([value - 0.2 for value in STEADY]), 0.05)
    assert found.scores is not None
    assert (found.word, found.scores.runs) == ("reproduced", (7, 8))
    assert str(found.shares) == "1 of 8 against 0 of 8"


def test_seeds_that_agree_to_the_last_digit_are_a_verdict_of_their_scores() -> None:
    assert verdict(arm([0.5] * 8), arm([0.5] * 8), 0.05).word == "no difference that matters"
    found = verdict(arm([0.95] * 8), arm([0.2] * 8), 0.05)
    assert (found.word, found.scores and found.scores.p) == ("reproduced", 0.0)


def test_welch_is_scipys() -> None:
    a, b = np.array(LONGER), np.array(SHORT[:6])
    limits = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.98)
    found = welch(a, b, 0.98)
    assert (found.low, found.high) == pytest.approx((limits.low, limits.high), abs=1e-12)


def test_intervals_of_scores_stay_inside_the_scale_and_need_four_seeds() -> None:
    two = score_interval(np.array([0.7, 0.776]))
    assert str(two) == "0.700, 0.776"
    assert math.isnan(two.low)
    wide = score_interval(np.array([1.0, 1.0, 0.1, 0.0]))
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_python_and_sql_take_the_collapse_rule_from_one_place() -> None:
    curves = next(text for text in views.scripts() if "MACRO run_endings" in text)
    assert f"greatest({MIN_FALL}, {FALL_ERRORS} * own_stderr)" in curves
    best = np.array([1.0] * 10)
    assert far_below(best, np.array([0.89] * 10)) == pytest.approx((1.0, 0.89))
    assert far_below(best, np.array([0.91] * 10)) is None
