"""Every gym as a Gymnasium environment, tested with Gymnasium's own checker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium

from tests.makers import raises
from userrl_core import gyms
from userrl_core.gyms.gymnasium_env import environment_id
from userrl_core.gyms.registry import names
from userrl_core.gyms.travel.world import MessageReading


def make_env(name: str = "function", **options: Any) -> gymnasium.Env[str, str]:
    return gymnasium.make(environment_id(name), **options)


def test_the_ids_derive_from_the_gyms_names():
    assert environment_id("travel") == "userrl/Travel-v0"
    assert {environment_id(name) for name in names()} <= set(gymnasium.registry)


def test_the_id_may_name_the_module_that_registers_it():
    env = gymnasium.make(f"userrl_core.gyms.gymnasium_env:{environment_id('travel')}", task_options={"tier": "tiny"})
    assert env.reset(seed=1)[0].startswith("book a hotel by ")


def test_the_same_seed_draws_the_same_task():
    first, second = make_env("travel"), make_env("travel")
    assert first.reset(seed=5) == second.reset(seed=5)


def test_a_released_action_string_and_a_tool_call_are_equivalent():
    env = make_env()
    env.reset(seed=1)
    bracket = env.step("[action] 1 2 3 4")[0]
    call = env.step(
        '<tool_call>{"name": "interact_with_env", "arguments": {"choice": "action", "content": "1 2 3 4"}}</tool_call>'
    )
    assert call[0] == bracket


def test_giving_up_terminates_without_reward():
    env = make_env()
    env.reset(seed=1)
    assert env.step("[finish]")[1:4] == (0.0, True, False)


def test_the_right_answer_terminates_with_success():
    task = gyms.tasks("function", "test")[0]
    env = make_env(task=task)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(f"[answer] {task.payload['expected']}")
    assert (reward, terminated, truncated, info["success"], info["score"]) == (1.0, True, False, True, 1.0)


def test_all_turns_of_the_horizon_are_executed_before_truncation():
    env = make_env(horizon=3)
    env.reset(seed=1)
    assert [env.step(message)[3] for message in ("[action] 1 1 1 2", "no call at all", "[search] test")] == [
        False,
        False,
        True,
    ]


def test_a_message_without_a_call_is_a_format_error_and_earns_nothing():
    env = make_env()
    env.reset(seed=1)
    observation, reward, terminated, _, info = env.step("hello")
    assert "readable tool call" in observation
    assert (reward, terminated, info["format_error"]) == (0.0, False, True)


def test_characters_outside_the_observation_space_are_replaced_not_refused():
    class EmojiUser:
        async def judge(self, utterance: str, candidates: Any, history: Any) -> Any:
            return MessageReading("other")

        async def chat(self, utterance: str, history: Any) -> str:
            return "fine \U0001f600"

    env = make_env("travel", user=EmojiUser(), task=gyms.tasks("travel", "train", tier="tiny")[0])
    env.reset(seed=1)
    observation = env.step("[action] hello")[0]
    assert observation == "fine \ufffd"
    assert env.observation_space.contains(observation)


NULL_GYM = """
from userrl_core.gyms.base import Gym, GymConfig, Reply

class NullGym(Gym[GymConfig]):
    name = "null"
    metric = "none"

    def opening(self):
        return "Hello."

    async def action(self, content):
        return Reply("", None)
"""
NULL_TASKS = """
from userrl_core.records import Task

def tasks(split):
    return [Task("null", "t", split, {})]
"""


def test_an_unscored_turn_is_nan_and_truncates_the_episode(tmp_path: Path):
    # A gym package of its own, found by its entry point, in a process that has it on the path.
    for name, text in (("__init__", ""), ("gym", NULL_GYM), ("tasks", NULL_TASKS)):
        path = tmp_path / "null_gym" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    metadata = tmp_path / "null_gym-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: null-gym\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[userrl.gyms]\nnull = null_gym\n")
    code = (
        "import gymnasium, userrl_core.gyms.gymnasium_env\n"
        "env = gymnasium.make('userrl/Null-v0', disable_env_checker=True)\n"
        "env.reset(seed=1)\n"
        "print(*env.step('[action] hello')[1:4])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["nan", "False", "True"]


def test_a_horizon_of_zero_is_refused():
    with raises("argument.out_of_range"):
        make_env(horizon=0)
