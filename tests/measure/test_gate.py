"""The three answers of a rule, and that a rule at its bound passes at most as often as its level says."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.gate import LEVEL, MARGIN, TABLE, breaks, trades
from userrl_core.measure.bounded import lower_limit, p_above, p_below, upper_limit
from userrl_core.measure.checkpoints import swap_test
from userrl_core.measure.gate import difference_of_seeds, difference_of_tasks, ratio_at_most, share_at_most


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


@pytest.mark.parametrize("candidate", [breaks, trades])
def test_a_candidate_at_the_bound_passes_at_most_as_often_as_the_level(candidate) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    passes = 0
    for _ in range(250):
        a, b = candidate(150, 1, rng)
        passes += p_above((b - a).mean(1), -MARGIN, -1.0) <= LEVEL
    assert passes / 250 <= LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / 250)


def test_the_committed_simulation_keeps_the_level() -> None:
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 33
    above_by_chance = LEVEL + 2.5 * math.sqrt(LEVEL * (1 - LEVEL) / 2000)
    assert max(float(row["gate"]) for row in rows) <= above_by_chance
    assert max(float(row["Student's t"]) for row in rows if row["candidate"] == "breaks") > 0.3


def test_an_open_question_says_how_many_tasks_and_attempts_decide() -> None:
    # d = +1, -1 on 15 tasks each and 0 on 70, one attempt: mean 0, and the gap to the bound is .02.
    a = [[0.0]] * 15 + [[1.0]] * 15 + [[1.0]] * 70
    b = [[1.0]] * 15 + [[0.0]] * 15 + [[1.0]] * 70
    once = difference_of_tasks(a, b, -0.02, 0.05)
    assert once.answer == "INCONCLUSIVE"
    assert once.needed is not None
    variance = np.append(np.repeat([1.0, -1.0, 0.0], [15, 15, 70]), -1.0).var()
    assert once.needed.tasks == math.ceil((1.6448536 + 0.8416212) ** 2 * variance / 0.02**2)
    assert (once.needed.attempts, once.needed.attempts_help) == (None, None)
    # Two attempts that always agree: more of them teach nothing.
    twice = difference_of_tasks([row * 2 for row in a], [row * 2 for row in b], -0.02, 0.05)
    assert twice.needed is not None
    assert twice.needed.attempts_help is False
    # Two attempts that never agree: the difference is chance alone, and more attempts decide.
    chance = difference_of_tasks([[0.0, 1.0]] * 50, [[1.0, 0.0]] * 50, -0.02, 0.05)
    assert chance.needed is not None
    assert chance.needed.attempts == math.ceil(1.0 / (50 * (0.02 / (1.6448536 + 0.8416212)) ** 2))


def test_seeds_use_students_t_until_one_collapsed() -> None:
    differences = np.array([0.05, 0.03, 0.06, 0.04, 0.05, 0.02, 0.07, 0.04])
    assert difference_of_seeds(differences, 0.0, 0.05, collapsed=False).answer == "PASS"
    assert difference_of_seeds(differences, 0.0, 0.05, collapsed=True).answer == "INCONCLUSIVE"
    few = difference_of_seeds(differences[:3], 0.0, 0.05, collapsed=False)
    assert (few.answer, few.needed.seeds if few.needed else None) == ("INCONCLUSIVE", 4)


def test_no_collapse_in_28_seeds_is_not_yet_a_share_of_a_tenth() -> None:
    assert share_at_most(0, 29, 0.1, 0.05).answer == "PASS"  # .9^29 = .047
    undecided = share_at_most(0, 8, 0.1, 0.05)
    assert (undecided.answer, undecided.needed.seeds if undecided.needed else None) == ("INCONCLUSIVE", 29)
    assert share_at_most(4, 8, 0.1, 0.05).answer == "FAIL"


def test_a_cost_passes_only_if_the_sums_agree() -> None:
    a = [100.0, 110.0, 90.0, 105.0, 95.0, 100.0, 102.0, 98.0, 101.0, 99.0, 100.0, 100.0]
    assert ratio_at_most(a, [1.1 * x for x in a], 1.2, 0.05).answer == "PASS"
    assert ratio_at_most(a, [1.3 * x for x in a], 1.2, 0.05).answer == "FAIL"
    one_expensive = [0.9 * x for x in a[:-1]] + [1000.0]
    assert ratio_at_most(a, one_expensive, 1.2, 0.05).answer == "INCONCLUSIVE"
    assert ratio_at_most(a[:9], a[:9], 1.2, 0.05).reason == "a statement about costs needs at least 10 tasks"
    assert ratio_at_most([0.0, *a], [1.0, *a], 1.2, 0.05).answer == "INCONCLUSIVE"


def test_huge_scores_have_a_p_value_in_bounded_memory() -> None:
    assert swap_test(np.full(6, 1.2e29), 1) == pytest.approx(2 / 2**6, abs=0.01)
