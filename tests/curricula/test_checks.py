"""What is refused when a recipe is loaded must be what training would refuse later, and nothing else."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import curricula
from curricula.feasibility import SAMPLE, reward_range, solving_turns
from tests.makers import raises
from tests.offered import in_this_process, offer
from tests.places import ROOT
from tests.userrl_core.gyms.local import LOCAL_GYMS
from userrl_core.errors import ConfigError
from userrl_core.gyms import RewardBounds, gym_class, min_turns, tasks
from userrl_core.gyms.base import parse_config


def only(gym: str) -> dict[str, Any]:
    """Overrides that train on one gym's own tasks."""
    return {"stages.*.mix": {gym: 1}, "split.held_out": [], "allow_short_horizon": True}


def refusal(name: str, overrides: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        curricula.load(name, "laptop-quick", overrides)
    return str(caught.value)


def test_a_gyms_own_negative_reward_is_refused_where_credit_may_not_be_negative() -> None:
    given = {**only("function"), "gyms.function.config": {"wrong_reward": -0.5}, "credit.form": "released"}
    assert "Gym 'function' gives rewards down to -0.5" in refusal("r2g-r2g", given)
    curricula.load("r2g-r2g", "laptop-quick", {**given, "credit.form": "paper"})


def test_a_gyms_own_large_reward_is_refused_under_em() -> None:
    given = {**only("function"), "gyms.function.config": {"correct_reward": 2.0}}
    assert "gives rewards from 0 to 2, and shaping em needs them in [0, 1]" in refusal("em-r2g", given)
    curricula.load(
        "em-r2g", "laptop-quick", {**given, "gyms.function.config": {"correct_reward": 2.0, "reward_scale": 0.5}}
    )


@pytest.mark.parametrize(
    ("gym", "penalty", "low"),
    [
        ("turtle", 0.5, -0.5),  # an explanation may add as little as one likes
        ("function", 0.5, 0.0),  # a right value still earns a half
        ("function", 1.5, -0.5),
        ("travel", 0.75, 0.0),  # the best option of a tiny task and a correct one of the others earn 0.8
        ("intention", 0.5, 0.0),  # there are no answers
    ],
)
def test_the_penalty_on_unsupported_answers_counts_where_answers_earn_too_little(
    gym: str, penalty: float, low: float
) -> None:
    given = {**only(gym), "credit.form": "released", "credit.terms.unsupported_penalty": penalty}
    if low < 0:
        assert f"down to {low:g} (less credit.terms.unsupported_penalty)" in refusal("naive-sum", given)
    else:
        assert reward_range(curricula.load("naive-sum", "laptop-quick", given), gym)[0] == low  # type: ignore[index]


def test_a_bonus_for_every_step_makes_every_answer_a_rewarded_one() -> None:
    given = {**only("function"), "gyms.function.config.step_penalty": -0.1, "credit.form": "released"}
    assert "down to -0.5" in refusal("naive-sum", {**given, "credit.terms.unsupported_penalty": 0.5})


@pytest.mark.parametrize("gym", LOCAL_GYMS)
def test_what_gyms_pay_without_settings_lies_between_0_and_1(gym: str) -> None:
    kind = gym_class(gym)
    bounds = kind.reward_bounds(parse_config(kind, {}))
    assert bounds[:2] == (0.0, 0.5 if gym == "wish" else 1.0)
    assert (bounds.answer == math.inf) == (gym in ("babyai", "intention", "persuade", "textcraft"))


@pytest.mark.parametrize(
    ("gym", "config", "pay"),
    [
        ("travel", {"turn_cap": None}, (0.0, 5.0, 0.8)),
        ("travel", {"turn_cap": None, "one_choice_per_aspect": False}, (0.0, math.inf, 0.8)),
        ("travel", {"preset": "tiny", "turn_cap": 0.5}, (0.0, 0.5, 0.5)),
        ("travel", {"preset": "userrl_train", "correct_reward": 0.0, "wrong_penalty": 0.1}, (0.0, 1.0, 0.0)),
        ("travel", {"preference_reward": 3.0}, (0.0, 3.0, 0.8)),
        ("function", {"correct_reward": 0.5, "wrong_reward": 0.25}, (0.0, 0.5, 0.25)),
        ("search", {"wrong": -1.0}, (-1.0, 1.0, 1.0)),
        ("telepathy", {"correct": 2.0}, (0.0, 2.0, 2.0)),
        ("math", {"wrong": -0.5, "correct": 0.0}, (-0.5, 0.0, math.inf)),
        ("tau", {"success": 10.0}, (0.0, 10.0, 10.0)),
        ("intention", {"medium": 1.5}, (0.0, 1.5, math.inf)),
        ("persuade", {"per_level": 0.5, "start": "Neutral"}, (0.0, 1.5, math.inf)),
        ("turtle", {"threshold": 0.5}, (0.0, 1.0, 0.0)),
    ],
)
def test_what_gyms_pay_follows_their_reward_fields(gym: str, config: dict[str, Any], pay: tuple[float, ...]) -> None:
    kind = gym_class(gym)
    assert kind.reward_bounds(parse_config(kind, config)) == RewardBounds(*pay)


@pytest.mark.parametrize(
    ("gym", "options", "message"),
    [
        ("travel", {"tier": ["easy", "medium"]}, "Gym 'travel' has no tier '['easy', 'medium']'. It has tiny, all"),
        ("travel", {"options": {"w": 5}}, "give options a single value"),
        ("function", {"tier": ["easy"]}, "give tier a single value"),
        ("math", {"tier": ["easy"]}, "give tier a single value"),
        ("telepathy", {"category": ["animal"]}, "give category a single value"),
        ("turtle", {"tier": ["easy"]}, "give tier a single value"),
    ],
)
def test_a_list_where_a_gym_wants_one_value_is_refused_in_one_sentence(
    gym: str, options: dict[str, Any], message: str
) -> None:
    with raises("task.bad_option") as caught:
        tasks(gym, "train", **options)
    assert message in str(caught.value)
    assert message in refusal("equalized-r2g", {**only(gym), f"gyms.{gym}.tasks": options})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("config", {"x": 1}, "Gym 'turtle' has no option 'x'"),
        ("evaluation", {"x": 1}, "Gym 'turtle' has no option 'x'"),
        ("tasks", {"x": 1}, "The tasks of gym 'turtle' do not accept these options"),
        ("user", "robot", "Gym 'turtle' has no 'robot' user"),
    ],
)
def test_options_of_a_gym_that_is_not_played_are_checked(key: str, value: Any, message: str) -> None:
    assert message in refusal("equalized-r2g", {**only("travel"), f"gyms.turtle.{key}": value})


def test_a_gym_whose_tasks_take_a_list_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = shutil.copytree(COIN, tmp_path / "userrl_coin")
    with (package / "tasks.py").open("a") as file:
        file.write(SIDES)
    offer(tmp_path, COIN.parent)
    with in_this_process(monkeypatch, tmp_path):
        options = {"sides": ["heads"]}
        assert {task.payload["side"] for task in tasks("coin", "train", **options)} == {"heads"}
        curricula.load("equalized-r2g", "laptop-quick", {**only("coin"), "gyms.coin.tasks": options})


COIN = ROOT / "examples" / "coin_gym" / "userrl_coin"
SIDES = """
every = tasks


def tasks(split, *, sides):
    return [task for task in every(split) if task.payload["side"] in sides]
"""


def test_a_horizon_is_refused_after_all_tasks_and_let_pass_after_a_sample() -> None:
    recipe = curricula.load("equalized-sum", "laptop-quick", only("wish"), check=False)
    of_all = [min_turns(task) for task in tasks("wish", "train")]
    sampled = solving_turns(recipe, "wish", {}, horizon=max(of_all))
    assert sampled is not None
    assert SAMPLE <= len(sampled) < 2 * SAMPLE < len(of_all)
    assert list(sampled) == of_all[:: len(of_all) // SAMPLE]
    refused = solving_turns(recipe, "wish", {}, horizon=min(of_all) - 1)
    assert refused is not None
    assert list(refused) == of_all
