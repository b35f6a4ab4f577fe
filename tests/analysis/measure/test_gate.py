"""The three answers of a rule, and that a rule at its bound passes at most as often as its level says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.measure.bounded import limit, p_above, p_below, units_to_decide
from analysis.measure.checkpoints import swap_test
from analysis.measure.families import families_text, id_stems
from analysis.measure.gate import (
    Decision,
    difference_of_seeds,
    difference_of_tasks,
    ratio_of_seeds,
    ratio_of_tasks,
    share_at_most,
)

LEVEL = 0.05


def lower_limit(values: np.ndarray, level: float, low: float) -> float:
    return limit(lambda bound: p_above(values, bound, low), level, float(values.mean()), low)


def upper_limit(values: np.ndarray, level: float, high: float) -> float:
    return limit(lambda bound: p_below(values, bound, high), level, float(values.mean()), high)


def test_limits_of_verdicts_are_clopper_and_pearsons() -> None:
    verdicts = np.array([1.0] * 3 + [0.0] * 17)
    assert lower_limit(verdicts, 0.05, 0.0) == pytest.approx(stats.beta.ppf(0.05, 3, 18), abs=1e-6)
    assert upper_limit(verdicts, 0.05, 1.0) == pytest.approx(stats.beta.ppf(0.95, 4, 17), abs=1e-6)


def test_equal_tasks_decide_from_149_on() -> None:
    # .98^148 = .0503 and .98^149 = .0493: with 148 equal tasks, 2 broken tasks in 100 are still possible.
    assert p_above(np.zeros(148), -0.02, -1.0) == pytest.approx(0.98**148, abs=1e-8)
    same = [[1.0]] * 149
    assert difference_of_tasks(same, same, -0.02, 0.05).answer == "PASS"
    assert difference_of_tasks(same[:148], same[:148], -0.02, 0.05).answer == "INCONCLUSIVE"


def test_the_p_value_is_a_share_of_dirichlet_weighted_means() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(0.05, 0.3, 60).clip(-1, 1)
    means = rng.dirichlet(np.ones(61), size=40_000) @ np.append(values, -1.0)
    assert p_above(values, 0.0, -1.0) == pytest.approx((means <= 0).mean(), abs=0.006)
    assert p_below(-values, 0.0, 1.0) == p_above(values, 0.0, -1.0)


def test_limits_of_many_tasks_are_nearly_students() -> None:
    values = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], p=[0.1, 0.75, 0.15], size=5000)
    student = values.mean() - stats.t.ppf(0.95, 4999) * values.std(ddof=1) / math.sqrt(5000)
    assert lower_limit(values, 0.05, -1.0) == pytest.approx(student, abs=5e-4)


def test_an_open_question_says_how_many_tasks_and_attempts_decide() -> None:
    # d = +1, -1 on 15 tasks each and 0 on 70, one attempt: mean 0, and the gap to the bound is .02.
    a = [[0.0]] * 15 + [[1.0]] * 15 + [[1.0]] * 70
    b = [[1.0]] * 15 + [[0.0]] * 15 + [[1.0]] * 70
    once = difference_of_tasks(a, b, -0.02, 0.05)
    assert once.answer == "INCONCLUSIVE"
    assert once.needed is not None
    rng, values = np.random.default_rng(0), np.repeat([1.0, -1.0, 0.0], [15, 15, 70])
    redrawn = rng.choice(values, (200, once.needed.tasks))
    decided = np.mean([p_above(row, -0.02, -1.0) <= 0.05 for row in redrawn])
    assert decided == pytest.approx(0.8, abs=0.08)
    assert (once.needed.attempts, once.needed.attempts_help) == (None, None)
    # Two attempts that always agree: more of them teach nothing.
    twice = difference_of_tasks([row * 2 for row in a], [row * 2 for row in b], -0.02, 0.05)
    assert twice.needed is not None
    assert twice.needed.attempts_help is False
    # Two attempts that never agree: the difference is chance alone, and more attempts decide.
    chance = difference_of_tasks([[0.0, 1.0]] * 50, [[1.0, 0.0]] * 50, -0.02, 0.05)
    assert chance.needed is not None
    assert chance.needed.attempts == math.ceil(1.0 / (50 * (0.02 / (1.6448536 + 0.8416212)) ** 2))


def test_seeds_use_students_t_over_the_runs_that_held() -> None:
    differences = np.array([0.05, 0.03, 0.06, 0.04, 0.05, 0.02, 0.07, 0.04])
    decision = difference_of_seeds(differences, 0.0, 0.05)
    assert decision.answer == "PASS"
    assert decision.p_kept == pytest.approx(stats.ttest_1samp(differences, 0, alternative="greater").pvalue)
    few = difference_of_seeds(differences[:3], 0.0, 0.05, of=6)
    assert (few.answer, few.needed.seeds if few.needed else None) == ("INCONCLUSIVE", 8)  # half of the seeds hold
    assert "whose runs held on both sides" in few.reason
    undecided = [difference_of_seeds(differences, 0.04, 0.05, of=of).needed for of in (8, 16)]
    assert undecided[0] is not None
    assert undecided[1] is not None
    assert undecided[1].seeds == 2 * (undecided[0].seeds or 0)


def test_no_collapse_in_28_seeds_is_not_yet_a_share_of_a_tenth() -> None:
    assert share_at_most(0, 29, 0.1, 0.05).answer == "PASS"  # .9^29 = .047
    undecided = share_at_most(0, 8, 0.1, 0.05)
    assert (undecided.answer, undecided.needed.seeds if undecided.needed else None) == ("INCONCLUSIVE", 29)
    assert undecided.interval.high == pytest.approx(1 - 0.05 ** (1 / 8))  # 8 seeds without a collapse allow .31
    assert share_at_most(4, 8, 0.1, 0.05).answer == "FAIL"


def ratio(a: list[float], b: list[float], cap: float, **more: object) -> Decision:
    return ratio_of_tasks(a, b, 1.2, 0.05, (cap, cap), **more)  # type: ignore[arg-type]


def test_a_cost_rule_tests_and_prints_the_ratio_of_the_totals() -> None:
    a = [10.0] * 400
    decision = ratio(a, [10.0] * 390 + [80.0] * 10, 100)
    assert decision.interval.estimate == pytest.approx((390 + 80) / 400)  # 1.175; the geometric mean is 1.053
    assert decision.answer == "INCONCLUSIVE"
    assert ratio(a, [15.0] * 400, 100).answer == "FAIL"
    # Equal costs give 1.2 * 10 - 10 = 2 for all tasks, and absent tasks may have -100: p is (1 - 2 / 102)^400.
    same = ratio(a, a, 100)
    assert (same.answer, same.interval.estimate) == ("PASS", 1.0)
    assert same.p_kept == pytest.approx((1 - 2 / 102) ** 400, rel=1e-6)
    assert ratio(a, a, 1000).answer == "INCONCLUSIVE"  # (1 - 2 / 1002)^400 = .45
    assert ratio([0.0] * 20, [1.0] * 20, 9).reason == "the tasks cost A nothing, so there is no ratio"


def test_the_limits_of_a_ratio_are_the_bounds_that_are_just_decided() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(1, 10, 80)
    b = rng.uniform(1, 10, 80)
    decision = ratio(a.tolist(), b.tolist(), 20)
    low, high = decision.interval.low, decision.interval.high
    assert low < decision.interval.estimate == b.sum() / a.sum() < high
    for bound, answer in ((high + 1e-4, "PASS"), (high - 1e-4, "INCONCLUSIVE"), (low - 1e-4, "FAIL")):
        assert ratio_of_tasks(a.tolist(), b.tolist(), bound, 0.05, (20, 20)).answer == answer
    times = ratio_of_tasks((1000 * a).tolist(), (1000 * b).tolist(), 1.2, 0.05, (20_000, 20_000))
    assert times.p_kept == pytest.approx(decision.p_kept, abs=1e-8)  # the unit of a cost changes nothing


def test_an_undecided_cost_says_how_many_tasks_decide() -> None:
    undecided = ratio([10.0] * 50, [10.0] * 50, 100)
    # ln .05 / ln(1 - 2 / 102) = 151.3
    assert (undecided.answer, undecided.needed.tasks if undecided.needed else None) == ("INCONCLUSIVE", 152)
    assert ratio([10.0] * 152, [10.0] * 152, 100).answer == "PASS"
    rng = np.random.default_rng(3)
    a = rng.lognormal(-0.125, 0.5, 100).clip(max=8.0)
    kept = 1.2 * a - a * rng.lognormal(0, 0.5, 100) * 0.9
    needed = units_to_decide(kept, -12.0, 1.2 * 12.0, LEVEL)
    assert needed is not None
    decided = [p_above(rng.choice(kept, needed), 0.0, -12.0) <= LEVEL for _ in range(150)]
    assert np.mean(decided) == pytest.approx(0.8, abs=0.1)


def test_costs_over_seeds_are_a_ratio_of_totals() -> None:
    a, b = np.array([4.0, 5.0, 6.0, 5.0, 4.5, 5.5]), np.array([4.1, 5.1, 6.2, 5.0, 4.6, 5.4])
    decision = ratio_of_seeds(a, b, 1.2, 0.05)
    assert decision.answer == "PASS"
    assert decision.interval.estimate == pytest.approx(b.sum() / a.sum())
    kept = 1.2 * a - b
    assert decision.p_kept == pytest.approx(stats.ttest_1samp(kept, 0, alternative="greater").pvalue)
    assert ratio_of_seeds(a, b, decision.interval.high - 1e-4, 0.05).answer == "INCONCLUSIVE"
    assert ratio_of_seeds(a[:3], b[:3], 1.2, 0.05).answer == "INCONCLUSIVE"
    assert ratio_of_seeds(np.zeros(6), b, 1.2, 0.05).reason == "the tasks cost A nothing, so there is no ratio"


def test_clusters_are_the_units_of_families() -> None:
    # 30 families of five: .98^30 = .55, so an equal candidate is undecided. As 150 tasks it would pass: .98^150 = .048.
    same = [[1.0]] * 150
    families = [str(task // 5) for task in range(150)]
    assert difference_of_tasks(same, same, -0.02, 0.05).answer == "PASS"
    grouped = difference_of_tasks(same, same, -0.02, 0.05, clusters=families)
    assert (grouped.answer, grouped.interval.units) == ("INCONCLUSIVE", 30)
    assert grouped.p_kept == pytest.approx(0.98**30, abs=1e-8)
    assert grouped.needed is not None
    assert (grouped.needed.clusters, grouped.needed.tasks, grouped.needed.attempts) == (149, None, None)
    alone = [str(task) for task in range(150)]
    assert difference_of_tasks(same, same, -0.02, 0.05, clusters=alone).p_kept == pytest.approx(0.98**150, abs=1e-8)
    costs = ratio([10.0] * 150, [10.0] * 150, 100, clusters=families)
    assert costs.p_kept == pytest.approx((1 - 2 / 102) ** 30, rel=1e-6)


def test_the_mean_over_clusters_of_different_size_is_the_mean_over_tasks() -> None:
    a, b = [[0.0]] * 6, [[1.0], [1.0], [1.0], [1.0], [0.0], [0.0]]
    decision = difference_of_tasks(a, b, 0.0, 0.05, clusters=["x", "x", "x", "x", "y", "z"])
    assert decision.interval.estimate == pytest.approx(4 / 6)
    # Dirichlet(1, 1, 1, 1) weights of 4, 0, 0 and the made-up -4: P(4 w1 - 4 w4 <= 0) = 1/2.
    assert decision.p_kept == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(
    ("ids", "stem"),
    [
        ([f"q{n}-{v}" for n in range(9) for v in "abcde"], "q7"),
        ([f"{n}{v}" for n in range(9) for v in "abcde"], "7"),
        ([f"task_{n}_v{v}" for n in range(9) for v in range(5)], "task_7"),
        ([f"{word}{v}" for word in ("city", "food", "q7") for v in (1, 2, 3)], "city"),
        ([f"{n}/{v}" for n in range(9) for v in ("base", "paraphrase")], "7"),
        ([f"q{n}-{v}" for n in range(9) for v in ("very-polite", "in-two-lines", "short")], "q7"),
        ([f"q{n}" for n in range(40)] + [f"q{n}.{v}" for n in range(5, 9) for v in "12"], "q7"),
    ],
)
def test_ids_that_share_a_stem_suggest_families(ids: list[str], stem: str) -> None:
    stems = id_stems(ids)
    assert stem in stems.values()
    assert 2 <= max(list(stems.values()).count(value) for value in stems.values()) <= 5
    assert "such as" in families_text({"gym": ids})


@pytest.mark.parametrize(
    "ids",
    [
        [f"t{n:03}" for n in range(200)],
        [str(n) for n in range(115)],
        [f"{hash_:016x}" for hash_ in np.random.default_rng(0).integers(0, 2**62, 300).tolist()],
        [f"{repository}-{n}" for repository in ("django", "sympy") for n in range(100)],
        ["only"],
        [],
    ],
)
def test_other_ids_suggest_no_families(ids: list[str]) -> None:
    assert id_stems(ids) == {}
    assert families_text({"gym": ids}) == ""


def test_huge_scores_have_a_p_value_in_bounded_memory() -> None:
    assert swap_test(np.full(6, 1.2e29), 1) == pytest.approx(2 / 2**6, abs=0.01)
