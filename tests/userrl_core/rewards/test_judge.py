"""Judged rewards: where each kind of trajectory lies, whatever its length and marks (TARL 3.2)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from userrl_core.rewards.judge import Category, JudgeConfig, category, judged_rewards

PAPER = JudgeConfig()
EDGE = 1e-9


@st.composite
def marked(draw: st.DrawFn) -> list[int]:
    marks = draw(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=30))
    if draw(st.booleans()):
        marks[draw(st.integers(0, len(marks) - 1))] = -1
    return marks


def bounds(kind: Category, turns: int) -> tuple[float, float]:
    return {
        "perfect": (15.0, 15.0),
        "good": (10.0, 15.0),
        "good_attempt": (0.0, 5.0),
        "failed": (-5.0, -5.0 / turns),
        "success_with_deviation": (5.0, 10.0 - 5.0 / turns),
    }[kind]


@given(marked(), st.booleans())
def test_every_trajectory_lies_in_the_range_of_its_category(marks: list[int], success: bool) -> None:
    low, high = bounds(category(marks, success), len(marks))
    assert low - EDGE <= sum(judged_rewards(marks, success, PAPER)) <= high + EDGE


@given(st.integers(1, 200))
def test_a_perfect_run_has_fifteen_points_whatever_its_length(turns: int) -> None:
    assert math.isclose(sum(judged_rewards([1] * turns, True, PAPER)), 15.0)
    assert category([1] * turns, True) == "perfect"


@given(marked(), st.booleans())
def test_a_turn_s_reward_is_its_mark_s_and_the_outcome_lies_on_the_last(marks: list[int], success: bool) -> None:
    rewards = judged_rewards(marks, success, PAPER)
    rewards[-1] -= 10.0 * success
    assert rewards == pytest.approx([{-1: -5.0, 0: 0.0, 1: 5.0 / len(marks)}[mark] for mark in marks])


def test_marks_that_no_judge_may_give_are_refused() -> None:
    for marks in ([-1, 1, -1], [2], [1, 3]):
        with raises("judge.no_reply"):
            judged_rewards(marks, True, PAPER)
