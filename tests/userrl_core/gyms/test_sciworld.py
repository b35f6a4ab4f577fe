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
from userrl_gym_sciworld.gym import names_in_room


def task(kind: str, variation: int = 0) -> Task:
    return Task("sciworld", f"{kind}/{variation}", "train", {"task": kind, "variation": variation}, tier="find")


java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")


def test_ids_are_counted_over_kinds_and_variations_as_agentgym_does() -> None:
    by_id = {task.id: task.payload for split in ("train", "validation", "test") for task in tasks("sciworld", split)}
    assert by_id["sciworld_0"] == {"task": "boil", "variation": 0}
    assert by_id["sciworld_120"] == {"task": "use-thermometer", "variation": 0}
    with raises("task.bad_option", "'finde'"):
        tasks("sciworld", "train", families=["finde"])


KITCHEN = (
    "This room is called the kitchen. In it, you see: \n\tthe agent\n\ta substance called air\n"
    "\ta counter. On the counter is: a bowl (containing a red apple, a banana), a drawer.\n"
    "\ta glass jar (containing a substance called sodium chloride)\n\ta sink, which is turned off. In the sink is: nothing.\n"
    "\ta substance called soap\nYou also see:\n\tA door to the bathroom (that is closed)\n\tA door to the outside (that is open)\n"
)


def test_a_room_by_names_has_its_things_and_doors_and_another_text_stays() -> None:
    assert names_in_room(KITCHEN) == "kitchen: counter, glass jar, sink, soap; to bathroom, outside"
    outside = "This outside location is called the outside. Here you see: \n\tan axe\n\ta parrot egg\nYou also see:\n"
    assert names_in_room(outside) == "outside: axe, parrot egg; to "
    assert names_in_room("The door is now open.") == "The door is now open."


def test_more_variations_of_a_kind_can_be_asked_for() -> None:
    kinds = ["lifespan-longest-lived", "lifespan-shortest-lived"]
    counts = [
        sum(len(tasks("sciworld", split, kinds=kinds, **options)) for split in ("train", "validation", "test"))
        for options in ({}, {"variations": 125})
    ]
    assert counts == [80, 250]


@java
@pytest.mark.slow
async def test_rooms_by_names_are_also_in_the_brief_opening() -> None:
    pytest.importorskip("scienceworld")
    gym = make("sciworld", task("lifespan-longest-lived", 2), rooms="names")
    gym.reset(seed=0)
    assert gym.brief().endswith(
        "with the longest life span.\n" + (await gym.step(InteractCall("action", "look around"))).observation
    )
    await gym.aclose()


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
