"""The released code's credit, selectable: `mean` scores, four digits, sample deviation, and the recipe that has them all."""

from __future__ import annotations

import math
import statistics
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import curricula
from tests.makers import raises
from userrl.run.tasks import gym_config
from userrl_core.gyms import make
from userrl_core.rewards import CreditConfig, assign_credit, turn_advantages

RELEASED = {"score": "mean", "rounding": "released", "ddof": 1, "form": "released"}
rewards = st.lists(st.integers(0, 20).map(lambda twentieths: twentieths / 20), min_size=1, max_size=15)
tokens = st.integers(1, 40)


def released_code(group: list[list[float]], counts: list[list[int]], shaping: str) -> list[list[float]]:
    """One group, token by token, as the released trainer computes it (z over the sample deviation, then a z N / sum(a))."""
    scores = [round(sum(turns) / len(turns), 4) for turns in group]
    mean, deviation = sum(scores) / len(scores), statistics.stdev(scores)
    found = []
    for turns, sizes, score in zip(group, counts, scores, strict=True):
        z = (score - mean) / (deviation + 1e-6)
        if shaping == "em":
            turn_credit = [round(0.5 + 0.5 * (1 - math.exp(-2 * r)) / (1 - math.exp(-2)), 4) for r in turns]
        else:
            turn_credit = [1.0] * len(turns)
        of_tokens = [value for value, size in zip(turn_credit, sizes, strict=True) for _ in range(size)]
        counted, total = sum(value != 0 for value in of_tokens), sum(of_tokens)
        found.append([value * z * counted / total for value in turn_credit])
    return found


@pytest.mark.parametrize("shaping", ["equalized", "em"])
@given(group=st.lists(rewards, min_size=2, max_size=8), data=st.data())
def test_random_batches_agree_with_the_formulas_of_the_released_code(
    shaping: Any, group: list[list[float]], data: st.DataObject
) -> None:
    counts = [[data.draw(tokens) for _ in turns] for turns in group]
    found = turn_advantages(group, ["g"] * len(group), turn_tokens=counts, shaping=shaping, **RELEASED)
    for row, expected in zip(found, released_code(group, counts, shaping), strict=True):
        assert row == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("shaping", "group", "expected"),
    [
        (
            "equalized",
            [[0, 0, 1], [0, 0.5], [0, 0, 0], [1]],
            [[-0.146443] * 3, [-0.341543] * 2, [-0.927080] * 3, [1.415066]],
        ),
        (
            "em",
            [[0.2, 0, 1], [0, 0.5], [0.1, 0, 0], [1]],
            [[-0.047526, -0.034409, -0.068818], [-0.301868, -0.522533], [-1.057229, -0.874032, -0.874032], [1.397549]],
        ),
    ],
)
def test_golden_vectors_of_the_released_mean(
    shaping: Any, group: list[list[float]], expected: list[list[float]]
) -> None:
    found = turn_advantages(group, ["g"] * 4, shaping=shaping, **RELEASED)
    for row, expected_row in zip(found, expected, strict=True):
        assert row == pytest.approx(expected_row, abs=1e-6)


def test_the_mean_is_rounded_only_where_the_rounding_is_reproduced() -> None:
    group = [[0, 0, 1], [0.5, 0, 0]]
    assert assign_credit(group, ["g", "g"], CreditConfig(score="mean")).scores.tolist() == pytest.approx(
        [1 / 3, 1 / 6], abs=1e-15
    )
    assert assign_credit(group, ["g", "g"], CreditConfig(score="mean", rounding="released")).scores.tolist() == [
        0.3333,
        0.1667,
    ]


def test_rounding_is_that_of_python_to_the_last_bit() -> None:
    # 0.00015 lies below its decimal: scaled by 10,000 it would round up.
    assert (
        assign_credit([[0.0003, 0.0], [0.0]], ["g"] * 2, CreditConfig(score="mean", rounding="released")).scores[0]
        == 0.0001
    )


def test_another_rounding_is_refused() -> None:
    with raises("credit.bad_setting"):
        turn_advantages([[1]], ["g"], rounding="four")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def recipe() -> curricula.Recipe:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return curricula.load("userrl-released", "qwen3-8b")


def test_the_recipe_has_the_credit_and_the_loss_of_the_released_run(recipe: curricula.Recipe) -> None:
    assert recipe.credit == CreditConfig(shaping="equalized", filter="keep", **RELEASED)
    assert (recipe.algorithm.loss_aggregation, recipe.algorithm.dual_clip, recipe.algorithm.clip) == (
        "token_mean",
        3.0,
        0.2,
    )
    assert [stage.horizon for stage in recipe.stages] == [15]
    group = [[0, 0.25, 1], [0.15, 0.5], [0, 0, 0]]
    found = assign_credit(group, ["g"] * 3, recipe.credit).advantages
    for row, expected in zip(
        found, released_code(group, [[1] * len(turns) for turns in group], "equalized"), strict=True
    ):
        assert row.tolist() == pytest.approx(expected, abs=1e-5)


def test_its_gyms_reward_the_evaluation_apart_from_training(recipe: curricula.Recipe) -> None:
    values = {}
    for evaluation in (False, True):
        config = gym_config(recipe, evaluation=evaluation)
        travel = make("travel", **config["travel"]).config
        turtle, persuade = make("turtle", **config["turtle"]).config, make("persuade", **config["persuade"]).config
        values[evaluation] = (
            travel.search_reward,
            travel.preference_reward,
            travel.best_reward,
            travel.correct_reward,
            turtle.threshold,
            persuade.paid,
        )
    assert values == {False: (0.0, 0.8, 1.0, 0.8, 1.0, "previous"), True: (0.2, 0.6, 1.0, 0.8, 1.0, "previous")}


def test_a_config_that_a_gym_cannot_be_evaluated_with_is_refused_when_the_recipe_is_loaded() -> None:
    with raises("gym.bad_option", "'turtle'", "'treshold'"):
        curricula.load("equalized-r2g", "laptop", {"gyms.turtle.evaluation": {"treshold": 0.9}})
