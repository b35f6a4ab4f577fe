"""SciWorld: ids, the score's scale, one Java process for many episodes, a sentence without Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.makers import raises
from userrl_core.gyms import make, tasks
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes


def task(kind: str, variation: int = 0) -> Task:
    return Task("sciworld", f"{kind}/{variation}", "train", {"task": kind, "variation": variation}, tier="find")


java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")


def test_ids_are_counted_over_kinds_and_variations_as_agentgym_does() -> None:
    by_id = {task.id: task.payload for split in ("train", "validation", "test") for task in tasks("sciworld", split)}
    assert by_id["sciworld_0"] == {"task": "boil", "variation": 0}
    assert by_id["sciworld_120"] == {"task": "use-thermometer", "variation": 0}
    with raises("task.bad_option", "'finde'"):
        tasks("sciworld", "train", families=["finde"])


def test_without_java_it_is_refused_in_one_sentence(tmp_path: Path) -> None:
    code = "from userrl_core.gyms import make; make('sciworld').reset(seed=0)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "SciWorld runs in Java, and there is no java here; install one" in done.stderr.splitlines()[-1]


@java
@pytest.mark.slow
async def test_a_wrong_focus_ends_it_with_no_less_than_0() -> None:
    pytest.importorskip("scienceworld")
    gym = make("sciworld", task("boil"))
    assert gym.reset(seed=0).startswith("Your task is to boil water.")
    last = await gym.step(InteractCall("action", "focus on air"))
    assert (last.reward, last.terminated, last.info["success"], gym.score()) == (0.0, True, False, 0.0)
    assert gym.points == -100  # type: ignore[attr-defined]
    await gym.aclose()


@java
@pytest.mark.slow
async def test_episodes_in_one_java_process_do_not_touch_one_another() -> None:
    pytest.importorskip("scienceworld")
    chosen = [
        task("find-non-living-thing", 2),
        task("find-plant"),
        task("find-animal", 3),
        task("lifespan-longest-lived", 1),
    ]
    together = await run_episodes(chosen, ScriptedPolicy(1.0), horizon=20, concurrency=4)
    alone = await run_episodes(chosen, ScriptedPolicy(1.0), horizon=20, concurrency=1)
    assert [t.score for t in together] == [pytest.approx(1.0)] * 4
    assert [[turn.observation for turn in t.turns] for t in together] == [
        [turn.observation for turn in t.turns] for t in alone
    ]
