"""The cross-play matrix and the curves of grounded answers, with values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.measure.grounded import Answered, area_under, band, grounded_curve
from userrl_crossplay.matrix import CrossPlayMatrix, cross_play, interaction

ROWS, COLUMNS = ("a", "b"), ("a", "b", "other")
CELLS = np.array([[0.9, 0.3, 0.2], [0.5, 0.7, 0.6]])


def study(scores: np.ndarray, start: np.ndarray | None = None) -> CrossPlayMatrix:
    return cross_play(scores, start, ROWS, COLUMNS, {"a": "a", "b": "b"}, [("b", "a")], ["b", "other"])


def test_gap_regret_and_worst_population_follow_from_the_cells() -> None:
    found = study(np.stack([CELLS] * 5), np.full((5, 3), 0.1))
    assert found.gap["a"].estimate == pytest.approx(0.9 - 0.25)
    assert found.gap["b"].estimate == pytest.approx(0.7 - 0.55)
    regret = {key: round(value.estimate, 9) for key, value in found.regret.items()}
    assert regret == {
        ("a", "a"): 0.0, ("b", "a"): 0.4, ("a", "b"): 0.4, ("b", "b"): 0.0, ("a", "other"): 0.4, ("b", "other"): 0.0,
    }  # fmt: skip
    assert (found.worst["a"][0], found.worst["b"][0]) == ("other", "a")
    assert found.gains["a", "a"].estimate == pytest.approx(0.8)


def test_the_contrast_is_the_mean_over_its_columns_and_equal_arms_do_not_differ() -> None:
    rng = np.random.default_rng(0)
    found = study(np.stack([CELLS] * 16) + rng.normal(0, 0.01, (16, 2, 3)))
    (contrast,) = found.contrasts
    assert contrast.interval.estimate == pytest.approx(0.65 - 0.25, abs=0.01)
    assert contrast.interval.low > 0.35
    assert contrast.p == contrast.adjusted < 1e-6
    equal = study(np.stack([np.full((2, 3), 0.5)] * 16) + rng.normal(0, 0.05, (16, 2, 3)))
    assert equal.contrasts[0].interval.low < 0 < equal.contrasts[0].interval.high
    assert equal.largest_interaction[3] > 0.02


def test_additive_cells_have_no_interaction_and_crossed_ones_have_all_of_it() -> None:
    additive = np.add.outer([0.1, 0.3], [0.0, 0.2, 0.4])
    assert np.abs(interaction(additive)).max() < 1e-12
    assert study(np.stack([additive] * 4)).interaction == pytest.approx(0, abs=1e-12)
    crossed = np.array([[0.2, 0.8], [0.8, 0.2]])
    found = cross_play(np.stack([crossed] * 6), None, ROWS, ROWS, {}, [("a", "b")], ["a"])
    assert found.interaction == pytest.approx(1)
    assert found.rank_agreement == pytest.approx(-1)
    assert (found.gap, found.gains) == ({}, {})


def test_equal_cells_have_no_interaction_although_their_means_are_rounded() -> None:
    rows = columns = tuple("abc")
    for value in (0.1, 0.7, 1 / 3):
        equal = np.full((2, 3, 3), value)
        equal[0, 0] += 2**-53
        assert cross_play(equal, None, rows, columns, {}, [("a", "b")], ["a"]).interaction == 0.0


def test_fewer_than_four_seeds_show_their_values_and_no_test() -> None:
    found = study(np.stack([CELLS, CELLS + 0.05]))
    assert found.cells["a", "a"].values == pytest.approx((0.9, 0.95))
    assert np.isnan(found.contrasts[0].p)


def test_grounded_success_counts_only_answers_within_the_turn_budget() -> None:
    talks = [
        Answered(turn=5, grounded=True, lucky=False, question_turns=(1, 2, 3), needed=3),
        Answered(turn=3, grounded=False, lucky=True, question_turns=(1,), needed=2),
        Answered(turn=None, grounded=False, lucky=False, question_turns=(1, 2, 3, 4, 5, 6), needed=1),
    ]
    curve = grounded_curve(talks, budgets=(3, 4, 5, 6))
    assert curve.grounded == pytest.approx((0, 0, 1 / 3, 1 / 3))
    assert curve.lucky == pytest.approx((1 / 3,) * 4)
    assert curve.questions == pytest.approx((7 / 3, 8 / 3, 3, 10 / 3))
    assert curve.oracle == pytest.approx((1 / 3, 2 / 3, 1, 1))
    assert curve.between == pytest.approx(curve.oracle_area - curve.area)
    assert curve.between > 0


def test_the_area_is_a_step_that_never_falls() -> None:
    assert area_under([0, 4, 8], [0.0, 0.5, 1.0], to=16) == pytest.approx((4 * 0.5 + 8 * 1.0) / 16)
    assert area_under([2, 4], [0.6, 0.2], to=4) == pytest.approx(0.3)
    assert area_under([20], [1.0], to=16) == 0
    with pytest.raises(ValueError, match="at least one"):
        grounded_curve([])


def test_a_band_is_wider_than_the_limits_at_one_budget_and_holds_a_constant_difference() -> None:
    rng = np.random.default_rng(1)
    difference_SB = np.column_stack([0.2 + 0.05 * rng.standard_normal((8, 20)), np.full(8, 0.1)])
    low_B, high_B = band(difference_SB)
    alone, _ = band(difference_SB[:, :1])
    assert (low_B[-1], high_B[-1]) == pytest.approx((0.1, 0.1))
    assert low_B[0] < alone[0] < difference_SB[:, 0].mean() < high_B[0]
    assert ((low_B + high_B) / 2) == pytest.approx(difference_SB.mean(axis=0))
    for each in band(np.full((8, 3), 0.5)):
        assert each == pytest.approx([0.5] * 3)
