"""The environment of examples/trl_grpo, driven as TRL 1.16 drives it: probed, reset by rows, called as a tool, read at the end."""

from __future__ import annotations

import csv
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.makers import raises
from tests.places import ROOT
from userrl_core.episode import EpisodeRules
from userrl_core.errors import UserError
from userrl_core.gyms.registry import gym_class, tasks

KNOWN = list(tasks("textcraft", "train", tier="tiny"))[:4]


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


example = loaded("examples/trl_grpo/environment.py")


def made(horizon: int = 16) -> Any:
    return example.GymEnvironment("textcraft", KNOWN, EpisodeRules(horizon, prompt_style="brief"))


def test_the_one_tool_is_the_one_method_beside_reset_and_the_reward() -> None:
    methods = [name for name, _ in inspect.getmembers(type(made()), inspect.isfunction) if not name.startswith("_")]
    assert methods == ["get_reward", "interact_with_env", "reset"]
    tool = inspect.signature(example.GymEnvironment.interact_with_env)
    assert list(tool.parameters) == ["self", "choice", "content"]


def test_the_shortest_plan_earns_the_reward_and_the_object_is_used_again() -> None:
    environment = made()
    for number, task in enumerate(KNOWN):
        assert environment.reset(prompt=[{"role": "user", "content": ""}], task=number) == task.payload["goal"]
        assert environment.get_reward() == 0.0
        gym = gym_class("textcraft")
        gold = gym.gold(task, gym.config_type())
        said = [environment.interact_with_env(choice=call.choice, content=call.content) for call in gold]
        assert said[-1] == "done"
        assert environment.get_reward() == 1.0
        assert environment.interact_with_env(choice="action", content="anything") == "over"
        assert environment.get_reward() == 1.0


def test_calls_beyond_the_horizon_change_nothing() -> None:
    environment = made(horizon=1)
    environment.reset(task=0)
    assert environment.interact_with_env("action", "nonsense") == "no"
    assert environment.interact_with_env("action", KNOWN[0].payload["goal"]) == "over"
    assert environment.get_reward() == 0.0


def test_a_turn_that_could_not_be_scored_stops_training_instead_of_counting_as_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def down(self: object, content: str) -> None:
        raise UserError("user.no_reply", "nobody is there")

    environment = made()
    environment.reset(task=0)
    monkeypatch.setattr(gym_class("textcraft"), "action", down)
    environment.interact_with_env("action", "anything")
    with raises("gym.not_scored"):
        environment.get_reward()


def test_a_curve_has_the_mean_of_every_step_with_its_interval_over_tasks(tmp_path: Path) -> None:
    script = loaded("lab/checks/trl_grpo.py")
    steps = [{"step": 1, "rewards": [[0.0, 0.0], [1.0, 0.0]]}, {"step": 2, "rewards": [[1.0, 1.0], [1.0, 0.0]]}]
    assert script.write_curve(steps, tmp_path / "curve.csv").startswith("reward of step 1: ")
    with (tmp_path / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], float(row["reward"]), row["tasks"], row["conversations"]) for row in rows] == [
        ("1", 0.25, "2", "4"),
        ("2", 0.75, "2", "4"),
    ]
    assert all(float(row["low"]) <= float(row["reward"]) <= float(row["high"]) for row in rows)


def test_the_committed_curve_has_a_row_for_every_step() -> None:
    with (ROOT / "examples/trl_grpo/curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(1, 101))
    assert {(row["tasks"], row["conversations"]) for row in rows} == {("16", "128")}
