"""CONTRIBUTING.md shows pieces that work: every block of it is run here."""

import json
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from curricula import load
from tests.flows.small import OVERRIDES, PROGRAM, environment
from warehouse import open_warehouse

COIN = Path(__file__).parents[2] / "examples" / "coin_gym"
EVERY_GYM = Path(__file__).parents[1] / "gyms" / "test_every_gym.py"
PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()


def block(kind: str) -> str:
    found = re.search(rf"^```\w+ {kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no block {kind}"
    return found.group(1)


def test_the_gym_of_the_page_is_that_of_the_example():
    assert f"```python\n{(COIN / 'userrl_coin' / 'gym.py').read_text()}```" in PAGE


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_gym_that_pip_installs_is_listed_trained_and_evaluated(tmp_path):
    source = shutil.copytree(COIN, tmp_path / "source")
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, "-m", "pip", *install, str(source)], check=True)
    home = tmp_path / "home"
    home.mkdir()
    given = environment(home) | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(COIN.parents[1])])}

    def run(*words):
        done = subprocess.run([sys.executable, *words], env=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    assert "coin" in run("-m", "flows.cli.main", "tasks", "list")
    run("-m", "flows.cli.main", "tasks", "validate", "coin")
    assert " passed" in run("-m", "pytest", "-p", "no:xdist", "--no-header", str(EVERY_GYM), "-k", "coin")
    overrides = {
        **OVERRIDES,
        "gyms.coin": {},
        "stages": [{"steps": 2, "horizon": 2, "mix": {"coin": 1}}],
        "evaluate.gyms": ["coin"],
        "evaluate.horizon": 2,
        "demonstrations.horizon": 2,
    }
    parameters = json.dumps({"recipe": "equalized-r2g", "overrides": overrides, "wandb": "off"})
    said = run("-c", PROGRAM, parameters)
    report = json.loads(said.split("RESULT ")[1].splitlines()[0])
    assert report["table"]["demonstrator"]["coin"]["attempts"] == 12
    assert report["table"]["RL"]["coin"]["score"] is not None
    assert "coin" in run(
        "-m", "flows.cli.main", "evaluate", "latest", "--gym", "coin", "--horizon", "2", "--tasks", "4"
    )


def test_the_shaping_of_the_page_keeps_the_sum():
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
    assert [recipe.schedule.horizon(step) for step in (1, 30, 31, 60)] == [10, 16, 16, 16]


def test_the_view_of_the_page_answers(tmp_path):
    with open_warehouse(tmp_path, read_only=False) as warehouse:
        warehouse.sql(block("view"))
        assert warehouse.sql("from turns_to_success()").fetchall() == []
