"""Intervals against golden values (the 200 published airline conversations) and against what is known by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.measure.checkpoints import (
    consistency,
    difference,
    difference_interval,
    mean_score,
    pass_hat,
    resolution,
    swap_test,
)
from analysis.measure.comparison import ComparedRun, ComparedSide, PairedDifference, _seeds_to_decide, compared
from analysis.measure.interval import Interval, share_interval, student, t_interval
from analysis.measure.recipes import contrast, crossed, deviation_limit, holm, seeds_needed

AIRLINE = [[1] * c + [0] * (4 - c) for c, tasks in enumerate((14, 12, 10, 4, 10)) for _ in range(tasks)]
"""50 tasks, 4 attempts each: how many tasks had 0, 1, 2, 3, 4 successes."""


@pytest.mark.parametrize(
    ("k", "estimate", "low", "high"),
    [(1, 0.42, 0.315, 0.525), (2, 0.2733, 0.162, 0.385), (3, 0.22, 0.106, 0.334), (4, 0.2, 0.085, 0.315)],
)
def test_pass_hat_k_of_the_airline_conversations(k: int, estimate: float, low: float, high: float) -> None:
    found = pass_hat(AIRLINE, k)
    assert found.estimate == pytest.approx(estimate, abs=5e-5)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-4)


def test_consistency_of_the_airline_conversations() -> None:
    found = consistency(AIRLINE)
    assert found.flips == pytest.approx(0.293333, abs=1e-6)
    assert (found.msb, found.msw, found.icc) == pytest.approx((0.545306, 0.146667, 0.404584), abs=1e-6)
    assert found.design_effect == pytest.approx(2.21, abs=5e-3)
    half = (pass_hat(AIRLINE, 1).high - 0.42) / stats.t.ppf(0.975, 49)
    assert half == pytest.approx(0.0522, abs=5e-5)


def test_wilson_limits_of_few_tasks_stay_within_0_and_1() -> None:
    found = mean_score([[0]] * 40)
    assert (found.estimate, found.low) == (0.0, pytest.approx(0.0, abs=1e-12))
    assert 0.08 < found.high < 0.1
    assert mean_score([[0.5], [0.7]]).method == "t"


def test_no_number_of_attempts_shows_what_differs_between_tasks() -> None:
    rng = np.random.default_rng(0)
    other = [list(row) for row in rng.permuted(np.array(AIRLINE), axis=0)]
    found = resolution(AIRLINE, other, 0.02)
    assert found.attempts is None
    assert "No number of attempts" in str(found)
    # Two agents that differ in nothing but luck: more attempts help.
    coin = [list(row) for row in rng.integers(0, 2, (400, 4))]
    same = resolution(coin, [list(row) for row in rng.integers(0, 2, (400, 4))], 0.1)
    assert same.attempts is not None
    assert str(same).startswith(f"{same.attempts} attempts")


def test_tasks_needed_follow_the_formula() -> None:
    a, b = [[0, 1], [1, 1], [0, 0]], [[1, 1], [1, 0], [0, 1]]
    within = np.mean([0.5 + 0, 0 + 0.5, 0 + 0.5])
    between = max(0.0, np.var([0.5, -0.5, 0.5], ddof=1) - within / 2)
    assert resolution(a, b, 0.1).tasks == math.ceil(7.8489 * (between + within / 2) / 0.01)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_the_swap_test_is_what_trying_every_sign_gives(whole: list[int]) -> None:
    sums = [
        abs(sum(s * d for s, d in zip(signs, whole, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(whole))
    ]
    expected = sum(total >= abs(sum(whole)) for total in sums) / len(sums)
    assert swap_test(np.array(whole) / 4, 4) == pytest.approx(expected)


def test_the_swap_test_of_single_verdicts_is_mcnemars_exact_one() -> None:
    a, b = [[1]] * 3 + [[0]] * 12 + [[1]] * 20, [[0]] * 3 + [[1]] * 12 + [[1]] * 20
    found = difference(a, b)
    assert found.p == pytest.approx(stats.binomtest(3, 15).pvalue)
    assert found.interval.estimate == pytest.approx(9 / 35)


def test_scores_that_are_no_verdicts_are_tested_by_drawn_signs() -> None:
    assert swap_test(np.array([0.013, 0.2, 0.31, 0.07, 0.111]), 1) == pytest.approx(2 / 32, abs=0.01)


def test_one_run_each_says_nothing_about_recipes() -> None:
    found = contrast({0: 0.4}, {0: 0.9})
    assert (found.interval.low, found.interval.high) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match="no seed in common"):
        contrast({0: 0.4}, {1: 0.9})


def test_the_prototypes_headline_rests_on_three_seeds() -> None:
    """Short against scaling on errand: +.174 [-.07, +.42]."""
    found = contrast({1: 0.223, 2: 0.393, 3: 0.325}, {1: 0.472, 2: 0.455, 3: 0.535}).interval
    assert (found.estimate, found.low, found.high) == pytest.approx((0.174, -0.07, 0.42), abs=0.006)


@pytest.mark.parametrize(("deviation", "needed"), [(0.035, (7, 4, 3)), (0.07, (18, 7, 4)), (0.10, (34, 10, 6))])
def test_seeds_needed_for_effects_of_5_10_and_15_points(deviation: float, needed: tuple[int, ...]) -> None:
    assert tuple(seeds_needed(deviation, effect) for effect in (0.05, 0.10, 0.15)) == pytest.approx(needed, abs=1)


def test_the_upper_limit_of_a_deviation_falls_with_seeds() -> None:
    assert deviation_limit(0.07, 8) > deviation_limit(0.07, 24) > 0.07


def test_holm_adjusts_the_smallest_most() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_a_difference_without_a_test_does_not_count_for_holm() -> None:
    assert holm([0.02, math.nan, 0.01]) == pytest.approx([0.02, math.nan, 0.02], nan_ok=True)


def test_collapsed_seeds_have_exact_limits() -> None:
    found = share_interval(0, 8)
    assert (found.low, found.high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 8)))


def test_resampling_seeds_and_tasks_is_wider_than_tasks_alone() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(0.4, 0.1, (6, 1)) + rng.normal(0, 0.3, (6, 200))
    b = rng.normal(0.4, 0.1, (6, 1)) + rng.normal(0, 0.3, (6, 200))
    whole, tasks = crossed(a, b), t_interval((b - a).mean(0))
    assert whole.high - whole.low > 2 * (tasks.high - tasks.low)


@pytest.mark.parametrize("seeds", [4, 8])
def test_limits_over_published_tasks_hold_for_equal_recipes(seeds: int) -> None:
    """Of 300 pairs of equal recipes, 5 % may be called different: 15, or 22 with two standard errors.

    These are 20 and 17. Percentiles alone call 47 and 25 different.
    """
    rng, excluded = np.random.default_rng(3), 0
    for _ in range(300):
        b = rng.normal(0, 0.07, (seeds, 1)) + rng.normal(0, 0.05, (1, 20)) + rng.normal(0, 0.09, (seeds, 20))
        over_tasks, over_seeds = crossed(np.zeros_like(b), b, draws=200), t_interval(b.mean(axis=1))
        assert over_tasks.low <= over_seeds.low < over_seeds.high <= over_tasks.high
        excluded += not over_tasks.low <= 0 <= over_tasks.high
    assert excluded <= 22


def published(seeds: int) -> pl.DataFrame:
    """Two recipes on 5 published tasks; B is .1 better, and seed n changes each by n / 100."""
    return pl.DataFrame(
        [
            {
                "side": side,
                "which": "best",
                "run_id": f"{side}{seed}",
                "seed": seed,
                "gym": "tau",
                "tier": "tau ",
                "task": task,
            }
            | {
                "task_id": task,
                "source": "published:tau",
                "scores": [score],
                "score": score,
                "own_score": score,
                "shared": True,
            }
            for side, level, change in (("A", 0.5, 0.01), ("B", 0.6, -0.01))
            for seed in range(seeds)
            for task in "abcde"
            for score in [level + change * seed]
        ]
    )


@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_published_tasks_give_few_seeds_no_limits_either(seeds: int) -> None:
    sides = [
        ComparedSide(name, tuple(ComparedRun(f"{name}{seed}", name, seed, "m", "m", None) for seed in range(seeds)))
        for name in "AB"
    ]
    comparison = compared(published(seeds), sides)
    (interval,) = (difference.interval for difference in comparison.paired)
    differences = [0.1 - 0.02 * seed for seed in range(seeds)]
    assert interval.values == (pytest.approx(differences) if seeds < 4 else ())
    assert comparison.to_decide[0].decided == ("" if seeds < 4 else "differ")  # type: ignore[union-attr]
    if seeds == 4:
        by_seed = t_interval(np.array(differences))
        assert (interval.low, interval.high) == pytest.approx((by_seed.low, by_seed.high))
        assert interval.method == "the wider of t, and seeds and tasks resampled"


@given(st.floats(0.5, 0.9999), st.floats(1, 1e5))
def test_the_quantile_of_students_t_is_the_number_of_scipy_stats(p: float, freedom: float) -> None:
    assert student(p, freedom) == stats.t.ppf(p, freedom)


def test_limits_of_scores_stay_in_the_range_of_scores() -> None:
    near_one = [[1.0]] * 118 + [[0.4], [0.9]]
    assert mean_score(near_one).high == 1.0
    assert mean_score([[1 - row[0]] for row in near_one]).low == 0.0
    assert mean_score([[0.0, 0.5], [1.0]]).low == 0.0
    assert pass_hat([[1, 1, 0]] + [[1, 1, 1]] * 9, 2).high == 1.0
    assert difference_interval([[0.0]] * 3, [[0.9], [1.0], [0.8]]).high == 1.0
    assert mean_score([[2.5], [-3.0], [0.5]]).low < -3.0  # a reward outside [0, 1] is no score of that range


@pytest.mark.parametrize(
    ("low", "high", "decided"),
    [(0.01, 0.2, "differ"), (-0.2, -0.01, "differ"), (-0.04, 0.04, "equal"), (-0.06, 0.04, ""), (-0.04, 0.06, "")],
)
def test_recipes_are_equal_only_if_both_limits_are_small(low: float, high: float, decided: str) -> None:
    interval = Interval((low + high) / 2, low, high, 8, "")
    assert _seeds_to_decide(PairedDifference("a", "b", "last", "all", interval, 0.5, deviation=0.1)).decided == decided
