"""The papers' metrics: exact values, properties, and the published table."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import metrics
from tests.published import published
from userrl_core.training.waits import waits

TEST_TASKS = {
    "travel": 471,
    "turtle": 48,
    "function": 78,
    "tau": 165,
    "persuade": 42,
    "intention": 40,
    "telepathy": 41,
    "search": 125,
}


def test_effective_turns_is_the_number_of_the_last_rewarded_turn():
    assert metrics.effective_turns([0, 0.2, 0, 0.8, 0]) == 4
    assert metrics.effective_turns([0, 0, 0]) == 0
    assert metrics.effective_turns([]) == 0
    assert metrics.effective_turns([0, -0.5]) == 2


def test_time_weighted_gives_the_first_turn_weight_one():
    assert metrics.time_weighted([1.0]) == 1.0
    assert metrics.time_weighted([0, 0.5, 0.3]) == pytest.approx(0.25 + 0.1)


def test_a_trajectory_with_a_null_reward_has_no_value():
    rewards = [0.5, None]
    assert metrics.effective_turns(rewards) is None
    assert metrics.time_weighted(rewards) is None
    assert metrics.mean([1.0, None, 0.0]) == 0.5
    assert metrics.mean([None]) is None


def test_the_published_micro_averages_follow_from_the_published_gym_scores():
    table = published("userrl").parent.parent / "reference" / "userrl_table3.csv"
    if not table.is_file():
        pytest.skip("the published result tables do not lie beside the published data")
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    systems: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows:
        key = (row["model"], row["turn_shaping"], row["trajectory_score"])
        systems.setdefault(key, {})[row["gym"]] = float(row["score"])
    assert len(systems) == 15
    for scores in systems.values():
        stated = next(scores.pop(name) for name in list(scores) if name not in TEST_TASKS)
        assert metrics.micro_average(scores, TEST_TASKS) == pytest.approx(stated, abs=1e-4)


def test_the_micro_average_of_one_published_row():
    qwen3_8b = [0.5730, 0.1854, 0.4231, 0.1818, 0.5317, 1.8175, 0.5610, 0.8880]
    average = metrics.micro_average(dict(zip(TEST_TASKS, qwen3_8b, strict=True)), TEST_TASKS)
    assert average == pytest.approx(0.5652, abs=1e-4)


def test_a_gym_without_a_count_is_named():
    with pytest.raises(ValueError, match="No task count for golf"):
        metrics.micro_average({"golf": 1.0}, TEST_TASKS)


def test_pass_hat_k_is_the_share_of_k_subsets_that_all_succeed():
    tasks = [[True, True, False, False], [True] * 4, [False] * 4]
    assert metrics.pass_hat_k(tasks, 1) == pytest.approx((0.5 + 1 + 0) / 3)
    assert metrics.pass_hat_k(tasks, 2) == pytest.approx((1 / 6 + 1 + 0) / 3)
    assert metrics.pass_hat_k(tasks, 4) == pytest.approx(1 / 3)


def test_best_at_k_is_the_expected_maximum():
    assert metrics.best_at_k([[0.0, 1.0, 0.5]], 1) == pytest.approx(0.5)
    assert metrics.best_at_k([[0.0, 1.0, 0.5]], 2) == pytest.approx((1.0 + 1.0 + 0.5) / 3)
    assert metrics.best_at_k([[0.0, 1.0, 0.5]], 3) == 1.0


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=8))
def test_pass_hat_k_never_rises_and_best_at_k_never_falls_with_k(tasks: list[list[bool]]):
    hats = [metrics.pass_hat_k(tasks, k) for k in range(1, 5)]
    bests = [metrics.best_at_k(tasks, k) for k in range(1, 5)]
    assert hats == sorted(hats, reverse=True)
    assert bests == pytest.approx(sorted(bests))
    assert hats[0] == pytest.approx(bests[0])


def test_too_few_trajectories_are_refused_with_the_setting_to_change():
    with pytest.raises(ValueError, match=r"evaluate\.attempts of 4"):
        metrics.pass_hat_k([[True]], 4)


def test_waits_are_counted_as_words():
    assert waits("Wait, no. wait... I await the waiter. WAIT!") == 3


def test_pass_at_k_is_the_share_of_k_subsets_with_a_success():
    tasks = [[True, True, False, False], [True] * 4, [False] * 4]
    assert metrics.pass_at_k(tasks, 1) == pytest.approx(metrics.pass_hat_k(tasks, 1))
    assert metrics.pass_at_k(tasks, 2) == pytest.approx((5 / 6 + 1 + 0) / 3)
    assert metrics.pass_at_k(tasks, 3) == pytest.approx(2 / 3)


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=6), st.integers(1, 5))
def test_best_at_k_of_verdicts_is_pass_at_k(tasks: list[list[bool]], k: int):
    assert metrics.best_at_k(tasks, k) == pytest.approx(metrics.pass_at_k(tasks, k))


def test_a_real_choice_is_an_answer_that_earned_something():
    choices, rewards = ["action", "answer", "search", "answer"], [0.2, 0.0, 0.2, 0.8]
    assert metrics.first_choice(choices, rewards) == 4
    assert metrics.weighted_score(choices, rewards) == pytest.approx(0.2)
    assert metrics.first_choice(["action", None], [1.0, 0.0]) == 0
    assert metrics.weighted_score(["action", None], [1.0, 0.0]) == 0.0
    assert metrics.first_choice(["answer"], [None]) is None


def test_preferences_are_counted_by_the_aspect_that_they_belong_to():
    infos = [
        {"preference": "P1", "elicited": "active"},
        {"search": "match"},
        {"preference": "P3", "elicited": "passive"},
    ]
    shares = metrics.preferences_by_aspect(infos, {"P1": "hotel", "P2": "hotel", "P3": "flight"})
    assert shares == {
        "hotel": {"elicited": 0.5, "active": 0.5, "passive": 0.0},
        "flight": {"elicited": 1.0, "active": 0.0, "passive": 1.0},
    }
