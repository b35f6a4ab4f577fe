"""CONTRIBUTING.md shows pieces that work: every block of it is run here."""

import asyncio
import json
import os
import random
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest

from curricula import load
from tests.flows.small import environment
from tests.makers import raises
from tests.places import ROOT, TESTS
from userrl_core.gyms import Reply
from userrl_core.gyms.registry import make_user
from userrl_core.interact import InteractCall
from userrl_core.records import Task
from warehouse import open_warehouse

COIN = ROOT / "examples" / "coin_gym"
EVERY_GYM = TESTS / "userrl_core" / "gyms" / "test_every_gym.py"
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def block(kind: str) -> str:
    found = re.search(rf"^```\w+ {kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no block {kind}"
    return found.group(1)


def test_the_gym_of_the_page_is_that_of_the_example():
    assert f"```python\n{(COIN / 'userrl_coin' / 'gym.py').read_text()}```" in PAGE


PART_6 = (ROOT / "docs" / "tutorial.md").read_text().partition("## 6. Add a gym")[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_copy_of_the_example_made_by_the_tutorial_s_words_learns_to_ask(tmp_path):
    commands = re.search(r"With GNU sed:\n\n(.*?)\n\n", PART_6, re.DOTALL)
    recipe = re.search(r"^    name: asks\n(?:    .*\n)+", PART_6, re.MULTILINE)
    assert commands
    assert recipe
    lines = [line.strip() for line in commands.group(1).splitlines()]
    assert lines[-2:] == ["pip install --no-deps -e my_gym", "userrl tasks validate mine"]
    (tmp_path / "examples").symlink_to(COIN.parent)
    subprocess.run(["/bin/sh", "-ec", "\n".join(lines[:-2])], cwd=tmp_path, check=True)
    site, home = tmp_path / "site", tmp_path / "home"
    home.mkdir()
    for project in (COIN, tmp_path / "my_gym"):  # the example is installed as well
        source = shutil.copytree(project, tmp_path / "built" / project.name)
        install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
        subprocess.run([sys.executable, "-m", "pip", *install, str(source)], check=True)
    given = environment(home) | {"PYTHONPATH": os.pathsep.join([str(site), str(COIN.parents[1])])}

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words], env=given, capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout + done.stderr

    listed = run("-m", "flows.cli.main", "tasks", "list")
    assert re.search(r"^coin ", listed, re.MULTILINE)
    assert re.search(r"^mine ", listed, re.MULTILINE)
    validated = run("-m", "flows.cli.main", "tasks", "validate", "mine")
    assert "200 tasks: 200 solved." in validated
    assert "`200 tasks: 200 solved.`" in PART_6
    assert " passed" in run("-m", "pytest", "-p", "no:xdist", "--no-header", str(EVERY_GYM), "-k", "mine")
    (tmp_path / "asks.yaml").write_text(textwrap.dedent(recipe.group()))
    train = ("-m", "flows.cli.main", "train", "asks.yaml")
    run(*train)
    (report,) = (json.loads(path.read_text())["table"] for path in home.glob("runs/*/report.json"))
    assert report["SFT"]["mine"]["score"] < 0.7
    assert report["RL"]["mine"]["score"] > 0.9
    assert report["RL"]["mine"]["turns"] > 1.5, "it asks"
    said = run("-m", "flows.cli.main", "evaluate", "latest", "--gym", "mine", "--horizon", "2", "--tasks", "4")
    assert "mine" in said
    with (site / "userrl_mine" / "gym.py").open("a") as file:
        file.write("# edited\n")
    assert "gym mine was " in run(*train, "--until", "distill")
    assert len([*home.glob("runs/asks-*.2/run.json")]) == 1


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


def test_the_user_of_the_page_on_users_answers_and_takes_its_options():
    # Not imported: other tests import their own copies of the package.
    gym_file, tasks_file = (runpy.run_path(str(COIN / "userrl_coin" / name)) for name in ("gym.py", "tasks.py"))
    found = re.search(r"^```python\n(class CoinUser:.*?)^```", (ROOT / "docs" / "users.md").read_text(), re.M | re.S)
    names = {"Task": Task, "random": random, "CoinGym": gym_file["CoinGym"], "Reply": Reply}
    exec(found.group(1), names)  # noqa: S102  our own page
    gym_type, heard = names["CoinGymWithUser"], []
    for task in tasks_file["tasks"]("test"):
        gym = gym_type(task, user=make_user(gym_type, task, ("rule", {"excuses": 1})))
        gym.reset(seed=0)
        replies = [asyncio.run(gym.step(InteractCall("action", "Which side?"))).observation for _ in range(2)]
        assert replies[1] == f"It starts with {task.payload['side'][0]}."
        heard.append(replies[0])
    assert "One moment." in heard
    assert set(heard) > {"One moment."}
    with raises("user.bad_option", "unexpected keyword argument 'excuse'"):
        make_user(gym_type, task, ("rule", {"excuse": 1}))
