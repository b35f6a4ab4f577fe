"""Finding gyms, tasks, users and demonstrators by name."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.makers import raises
from tests.places import ROOT
from userrl_core import gyms
from userrl_core.gyms.base import Gym
from userrl_core.gyms.registry import gym_class, names
from userrl_core.gyms.validate import validate
from userrl_core.records import Task


def test_an_unknown_gym_names_the_nearest():
    with raises("gym.not_installed"):
        gyms.make("travle")


def test_an_unknown_split_user_and_task_option_are_each_one_sentence():
    with raises("argument.unknown_value", "'dev'"):
        gyms.tasks("function", "dev")
    with raises("user.bad_option", "'oracle'"):
        gyms.make("travel", user="oracle")
    with raises("user.bad_option", "'oracle'"):
        gyms.make("function", user="oracle")
    with raises("task.bad_option"):
        gyms.tasks("function", "train", size=3)
    with raises("task.bad_option", "'huge'"):
        gyms.tasks("function", "train", tier="huge")


@pytest.mark.parametrize(
    "user", [("openai", {"nope": 1}), ("rule", {"nope": 1}), ("rule",)], ids=["openai", "rule", "no options"]
)
def test_options_that_a_user_does_not_accept_are_one_sentence(user: object):
    with raises("user.bad_option"):
        gyms.make("turtle", user=user)


def test_without_a_user_a_gym_has_the_rule_user():
    assert type(gyms.make("turtle", user=None).user) is type(gyms.make("turtle").user)


@pytest.mark.parametrize("options", [{"reward_scale": math.nan}, {"step_penalty": math.inf}, {"tolerance": -1.0}])
def test_rewards_and_tolerances_outside_their_range_are_refused(options: dict[str, float]):
    with raises("gym.bad_option"):
        gyms.make("function", **options)


def test_a_task_of_another_gym_is_refused():
    with raises("task.wrong_gym", "'travel'"):
        gyms.make("travel", gyms.tasks("function", "train")[0])


def test_a_gym_without_published_tasks_says_so(tmp_path: Path):
    with raises("task.not_published"):
        gyms.load_published("errand", tmp_path)
    with raises("task.file_missing"):
        gyms.load_published("function", tmp_path / "nowhere")


def test_importing_the_gyms_loads_neither_torch_nor_prefect_nor_a_gym():
    late = ("torch", "prefect", "userrl_core.gyms.travel.gym")
    code = f"import sys, userrl_core.gyms; print([m for m in {late} if m in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_a_task_whose_gold_solution_fails_is_reported_and_not_raised():
    task = Task("function", "t", "train", {"rule": "a", "test_case": [1, 1, 1, 1], "expected": float("nan")})
    result = validate(task)
    assert (result.ok, result.playable) == (False, True)
    assert result.reason.startswith("The gym failed on the gold solution: ValueError")


def test_the_docs_say_what_a_success_is_as_the_gyms_do():
    page = (ROOT / "docs" / "reference" / "gym-reference.md").read_text()
    rules = {name: gym_class(name).success_rule for name in names()}
    stated = {name: rule for name, rule in rules.items() if rule != Gym.success_rule}
    assert {"travel", "turtle", "persuade", "tau", "intention"} <= stated.keys()
    assert [name for name, rule in stated.items() if f"| `{name}` | {rule} |" not in page] == []
