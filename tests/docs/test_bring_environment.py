"""The page about environments that exist: its files make a gym, its commands check it, play it and train on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.flows.small import environment
from tests.places import ROOT

PAGE = (ROOT / "docs" / "bring-your-environment.md").read_text()
ROOM = """
import gymnasium


class Room(gymnasium.Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.off, self.presses = int(self.np_random.integers(3)), 0
        return "Three switches, one is off. Press it.", {}

    def step(self, action):
        self.presses += 1
        right = action == self.off
        hint = "Right." if right else "Go left." if action > self.off else "Go right."
        return hint, float(right), right, self.presses >= 3, {}
"""


@dataclass(frozen=True)
class Reader:
    """A reader's folder, in which the page's gym is installed."""

    folder: Path

    def types(self, *words: str, status: int = 0, stdin: str = "") -> str:
        """Type a command, and return what it prints."""
        paths = os.pathsep.join([str(self.folder / "site"), str(ROOT)])
        done = subprocess.run(
            [sys.executable, "-m", "flows.cli.main", *words],
            env=environment(self.folder / "home") | {"PYTHONPATH": paths},
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Somebody who has typed what the page says."""
    folder = tmp_path_factory.mktemp("bring")
    (folder / "examples").symlink_to(ROOT / "examples")
    typed = re.search(r"With GNU sed:\n\n(.*?)\n\n", PAGE, re.DOTALL)
    assert typed
    lines = [line.strip() for line in typed[1].splitlines()]
    assert lines.pop() == "pip install --no-deps -e my_gym"
    subprocess.run(["/bin/sh", "-ec", "\n".join(lines)], cwd=folder, check=True)
    package = folder / "my_gym" / "userrl_lights"
    (package / "room.py").write_text(ROOM)
    files = re.findall(r"^```python (\S+\.py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert {name for name, _ in files} == {"gym.py", "tasks.py", "demonstrator.py"}
    for name, code in files:
        (package / name).write_text(code)
    source = shutil.copytree(folder / "my_gym", folder / "built")
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(folder / "site")]
    subprocess.run([sys.executable, "-m", "pip", *install, str(source)], check=True)
    (folder / "home").mkdir()
    return Reader(folder)


def test_the_wrapped_environment_is_played_and_its_tasks_are_called_not_provable(reader: Reader) -> None:
    assert "200 not provable" in reader.types("tasks", "validate", "lights", status=1)
    played = reader.types("play", "lights", stdin="1\naction: 2\n0\n")
    assert "Three switches, one is off. Press it." in played
    assert re.search(r"reward \+1\.000.*\n.*Solved after \d turns?; score 1\.000", played.replace("\n\n", "\n"))


@pytest.mark.slow
def test_the_page_s_recipe_trains_on_it_and_its_turns_are_audited(reader: Reader) -> None:
    recipe = re.search(r"^    name: lights\n(?:    .*\n)+", PAGE, re.MULTILINE)
    assert recipe
    (reader.folder / "lights.yaml").write_text(textwrap.dedent(recipe[0]))
    small = {"demonstrations.episodes": 200, "cold_start.steps": 60, "evaluate.tasks": 12}
    reader.types(
        "train", "lights.yaml", *(word for key, value in small.items() for word in ("--set", f"{key}={value}"))
    )
    assert "| lights |" in reader.types("report", "latest")
    assert "lights" in reader.types("audit", "credit", "latest", "--gym", "lights")
