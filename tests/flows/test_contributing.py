"""CONTRIBUTING.md shows pieces that work: every block of it is run here."""

import asyncio
import re
import types
from pathlib import Path

import numpy as np
import pytest

from curricula import load
from userrl_core.gyms import registry
from userrl_core.policies import ScriptedPolicy
from userrl_core.rollout import run_episodes
from warehouse import open_warehouse

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()


def block(kind: str) -> str:
    found = re.search(rf"^```\w+ {kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no block {kind}"
    return found.group(1)


@pytest.fixture
def coin(tmp_path, monkeypatch):
    """The page's gym, installed as a package of its own."""
    package = tmp_path / "userrl_coin"
    about = tmp_path / "userrl_coin-1.0.dist-info"
    package.mkdir()
    about.mkdir()
    (package / "__init__.py").touch()
    for module in ("gym", "tasks", "demonstrator"):
        (package / f"{module}.py").write_text(block(module))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: userrl-coin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[userrl.gyms]\ncoin = userrl_coin\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry.packages.cache_clear()
    yield
    registry.packages.cache_clear()


def test_the_gym_of_the_page_is_solved_by_its_demonstrator(coin):
    tasks = list(registry.tasks("coin", "test"))
    assert tasks
    played = asyncio.run(run_episodes(tasks, ScriptedPolicy(1.0), horizon=2))
    assert {t.score for t in played} == {1.0}
    assert {t.stop_reason for t in played} == {"success"}


def test_the_shaping_of_the_page_keeps_the_sum(coin):
    found = types.ModuleType("contributed_shaping")
    exec(compile(block("shaping"), "CONTRIBUTING.md shaping", "exec"), found.__dict__)  # noqa: S102
    rewards = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
    real = np.array([[True, True, True], [True, False, False]])
    assert found.last_turn(rewards, real).tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def test_the_recipe_of_the_page_loads(tmp_path):
    path = tmp_path / "equalized-long.yaml"
    path.write_text(block("recipe"))
    recipe = load(path, profile="laptop")
    assert recipe.credit.gamma == 0.9
    assert [recipe.schedule.horizon(step) for step in (1, 30, 31, 60)] == [5, 5, 6, 6]


def test_the_view_of_the_page_answers(tmp_path):
    with open_warehouse(tmp_path, read_only=False) as warehouse:
        warehouse.sql(block("view"))
        assert warehouse.sql("from turns_to_success()").fetchall() == []
