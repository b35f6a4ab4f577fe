"""BabyAI in words: levels, view, actions, what a success pays, the demonstrator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.makers import raises
from tests.published import published
from tests.userrl_core.gyms.recorded import exchanges
from userrl_core.gyms import make, tasks
from userrl_core.gyms.babyai.gym import make_env
from userrl_core.gyms.babyai.levels import LEVELS
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes

pytest.importorskip("minigrid")


def task(level: str, seed: int = 0) -> Task:
    return Task("babyai", f"{level}/{seed}", "train", {"level": level, "seed": seed}, tier="goto")


async def said(gym: Any, *texts: str) -> list[tuple[str, float | None]]:
    results = [await gym.step(InteractCall("action", text)) for text in texts]
    return [(result.observation.partition("\n")[0], result.reward) for result in results]


def test_an_id_is_a_level_and_a_seed_as_agentgym_counts_them() -> None:
    by_id = {task.id: task for split in ("train", "validation", "test") for task in tasks("babyai", split)}
    assert len(LEVELS) == 40
    assert len(by_id) == 800
    assert by_id["babyai_41"].payload == {"level": "GoToRedBall", "seed": 1}
    assert (by_id["babyai_29"].payload["level"], by_id["babyai_29"].tier) == ("ActionObjDoor", "aod")
    with raises("task.bad_option", "'got'"):
        tasks("babyai", "train", families=["got"])


def test_the_world_of_an_id_is_the_one_that_the_real_server_showed() -> None:
    recorded = exchanges(published("agentgym") / "transcripts" / "babyai.txt")
    shown = {
        body["data_idx"]: json.loads(text)["observation"]
        for _, path, body, text, status in recorded
        if path == "/reset" and status == 200
    }
    assert set(shown) == {0, 41}
    for number, theirs in shown.items():
        ours = make("babyai", task(LEVELS[number % 40], number // 40)).reset(seed=0)
        assert ours.splitlines()[0] == theirs.splitlines()[0]
        assert actions_in(ours, "go to") == actions_in(theirs, "go to")


SERVED = [
    ("go to the blue key", (2, 1), 1),
    ("go to the yellow key", (1, 2), 3),
    ("go to the red box", (1, 2), 3),
    ("go to the grey key", (1, 1), 2),
    ("go to the grey ball", (1, 2), 1),
    ("go to the green box", (1, 2), 2),
]
"""Goal, place and direction under seeds 0 to 5 of GoToObjS6 as AgentGym's server has it (minigrid 2.3.1)."""


def test_go_to_obj_s6_is_the_room_of_4_and_16_moves_of_agentgyms_server() -> None:
    numbers = [seed * len(LEVELS) + LEVELS.index("GoToObjS6") for seed in range(len(SERVED))]
    by_id = {task.id: task for split in ("train", "validation", "test") for task in tasks("babyai", split)}
    worlds = [make_env(by_id[f"babyai_{number}"]) for number in numbers]
    assert [(world.mission, tuple(map(int, world.agent_pos)), world.agent_dir) for world in worlds] == SERVED
    assert {(world.grid.width, world.max_steps) for world in worlds} == {(4, 16)}


def test_a_stored_task_of_the_earlier_room_is_played_as_it_was() -> None:
    earlier = make_env(task("GoToObjS6"))
    assert (earlier.grid.width, earlier.max_steps, earlier.mission) == (6, 36, "go to the blue key")
    kept = next(task for task in tasks("babyai", "train", tier="tiny") if task.payload["level"] == "GoToRedBall")
    assert set(kept.payload) == {"level", "seed", "short"}
    changed = next(task for task in tasks("babyai", "train", tier="tiny") if task.payload["level"] == "GoToObjS6")
    assert changed.payload["version"] == 2


def actions_in(observation: str, what: str) -> set[str]:
    listed = json.loads(observation.split("Available actions: ")[1])
    return {text for text in listed if text.startswith(what)}


async def test_a_success_pays_less_with_every_move_and_ends_the_episode() -> None:
    gym = make("babyai", task("GoToRedBallGrey"))
    assert gym.reset(seed=0).startswith(
        "Your goal: go to the red ball\nIn view: grey key 1 is 1 ahead and 1 to the left; "
    )
    # Recorded: 0.8875 for the same world and the same action.
    assert await said(gym, "go to red ball 1") == [("The goal is reached.", pytest.approx(0.8875))]
    assert (gym.done, gym.succeeded) == (True, True)


async def test_moves_are_made_and_what_is_not_possible_is_said_with_what_is() -> None:
    gym = make("babyai", task("GoToRedBallGrey"))
    gym.reset(seed=0)
    results = await said(gym, "dance", "move forward", "Pickup grey key 2", "drop", "check available actions")
    assert results[0] == ("'dance' is not possible now.", 0.0)
    assert "grey key 1 is 0 ahead and 1 to the left" in results[1][0]
    assert results[2][0].endswith("You carry a grey key.")
    assert [reward for _, reward in results] == [0.0] * 5
    last = await gym.step(InteractCall("action", "check available actions"))
    assert last.observation.splitlines()[1].startswith('Available actions: ["turn left", "turn right", ')


async def test_a_locked_door_opens_with_the_key_of_its_colour_alone() -> None:
    (trajectory,) = await run_episodes([task("UnlockLocalDist", 1)], ScriptedPolicy(1.0), horizon=20)
    contents = [str(turn.content) for turn in trajectory.turns]
    (door,) = [text for text in contents if text.startswith("toggle and go through ")]
    colour = door.split()[4]
    assert contents.index(f"pick up {colour} key 1") < contents.index(door)
    assert "locked door" in door
    key = contents.index(f"pick up {colour} key 1")
    assert "toggle and go through" not in trajectory.turns[key - 1].observation
    assert "toggle and go through" in trajectory.turns[key].observation
    assert trajectory.stop_reason == "success"


async def test_a_demonstrator_that_plans_in_circles_gives_up_and_plays_on() -> None:
    """minigrid's bot never came back from this one."""
    chosen = next(task for task in tasks("babyai", "train") if task.id == "babyai_188")
    (trajectory,) = await run_episodes([chosen], ScriptedPolicy(0.6), horizon=16, seed=8)
    assert (len(trajectory.turns), trajectory.score, trajectory.admitted) == (16, 0.0, True)


async def test_the_demonstrator_reaches_goals_within_the_paper_s_20_turns() -> None:
    levels = (
        "GoToRedBall",
        "GoToObjS6",
        "GoToLocalS8N7",
        "PickupLoc",
        "OpenDoorLoc",
        "PutNextLocalS6N4",
        "ActionObjDoor",
    )
    chosen = [task(level, seed) for level in levels for seed in range(2)]
    trajectories = await run_episodes(chosen, ScriptedPolicy(1.0), horizon=20)
    assert [t.stop_reason for t in trajectories].count("success") >= 12
    assert all(t.score is not None and 0.1 <= t.score < 1.0 for t in trajectories if t.stop_reason == "success")
