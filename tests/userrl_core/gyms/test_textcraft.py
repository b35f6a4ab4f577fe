"""TextCraft: recipes, commands, shortest plans, and the published goals under the numbers that AgentGym gives them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from tests.published import published
from userrl_core.gyms import load_published, make, min_turns, tasks
from userrl_core.gyms.textcraft.crafting import Book, depths, parse_craft
from userrl_core.gyms.textcraft.gym import book_of
from userrl_core.gyms.textcraft.minecraft import Minecraft, read_recipes
from userrl_core.gyms.textcraft.planner import plan
from userrl_core.gyms.textcraft.tasks import generate
from userrl_core.gyms.validate import validate
from userrl_core.interact import InteractCall
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes

STICKS = Task(
    "textcraft",
    "t0",
    "train",
    {
        "goal": "ladder",
        "recipes": [
            "craft 2 plank using 1 log",
            "craft 4 oak plank using 1 oak log",
            "craft 4 stick using 2 planks",
            "craft 3 ladder using 7 stick",
        ],
        "kinds": {"planks": ["plank", "oak plank"]},
    },
)


async def played(task: Task, *commands: str) -> tuple[Any, list[tuple[str, float | None]]]:
    gym = make("textcraft", task)
    gym.reset(seed=0)
    results = [await gym.step(InteractCall("action", text)) for text in commands]
    return gym, [(result.observation, result.reward) for result in results]


async def test_the_goal_is_crafted_of_what_was_fetched_and_pays_one() -> None:
    gym, results = await played(
        STICKS,
        "get 1 oak log",
        "Craft 4 oak plank using 1 oak log.",
        "craft 4 stick using 2 oak plank",
        "craft 4 stick using 2 oak plank",
        "inventory",
        "craft 3 ladder using 7 stick",
    )
    assert results == [
        ("Got 1 oak log", 0.0),
        ("Crafted 4 oak plank", 0.0),
        ("Crafted 4 stick", 0.0),
        ("Crafted 4 stick", 0.0),
        ("Inventory: [stick] (8)", 0.0),
        ("Crafted 3 ladder", 1.0),
    ]
    assert (gym.done, gym.succeeded, gym.score()) == (True, True, 1.0)
    assert min_turns(STICKS) == 5


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("inventory", "Inventory: You are not carrying anything."),
        ("inventory now", "Inventory: You are not carrying anything."),
        ("fly", "Could not execute fly"),
        ("get 0 log", "Could not execute get 0 log"),
        ("get 1234567 log", "Could not execute get 1234567 log"),
        ("get log", "Could not execute get log"),
        ("get 1 stick", "Could not find stick"),
        ("get 2 planks", "Could not find planks"),
        ("get 1 emerald", "Could not find emerald"),
        ("craft 4 stick using 2 oak plank", "Could not find enough items to craft stick"),
        ("craft 4 stick using planks", "Could not execute craft 4 stick using planks"),
    ],
)
async def test_what_cannot_be_done_is_refused_and_changes_nothing(command: str, said: str) -> None:
    _, results = await played(STICKS, command, "inventory")
    assert results == [(said, 0.0), ("Inventory: You are not carrying anything.", 0.0)]


async def test_a_kind_is_filled_by_one_member_in_the_right_number_and_not_by_its_own_name() -> None:
    _, results = await played(
        STICKS,
        "get 9 log",
        "get 1 oak log",
        "craft 2 plank using 1 log",
        "craft 4 oak plank using 1 oak log",
        "craft 4 stick using 2 planks",
        "craft 4 stick using 1 plank, 1 oak plank",
        "craft 4 stick using 1 plank, 1 plank",
        "craft 2 plank using 2 log",
    )
    assert [said for said, _ in results[4:]] == [
        "Could not find enough items to craft stick",
        "Could not find a valid recipe for stick",
        "Crafted 4 stick",
        "Could not find a valid recipe for plank",
    ]


async def test_in_the_tiny_tier_a_name_is_a_command_and_what_is_missing_is_named() -> None:
    recipes = ["craft 1 lamp using 1 oar, 1 salt", "craft 1 oar using 1 bell", "craft 1 drum using 1 salt"]
    task = Task("textcraft", "t1", "train", {"goal": "lamp", "recipes": recipes, "kinds": {}, "short": True})
    gym, results = await played(task, "lamp", "oar", "bell", "oar", "lamp", "salt", "harp", "lamp")
    assert [said for said, _ in results] == ["oar", "bell", "ok", "ok", "salt", "ok", "no", "done"]
    assert [reward for _, reward in results] == [0.0] * 7 + [1.0]
    assert gym.brief() == "lamp"


def test_a_plan_may_be_cheaper_with_two_recipes_of_one_thing_and_leaves_nothing_out() -> None:
    lines = [
        "craft 3 rod using 2 wood",
        "craft 2 rod using 1 reed",
        "craft 1 wood using 1 tree",
        "craft 1 mast using 5 rod",
    ]
    steps = plan(Book.read(lines, {}), "mast")
    assert [str(step) for step in steps] == [
        "('reed', 3)",
        *["craft 2 rod using 1 reed"] * 3,
        "craft 1 mast using 5 rod",
    ]


def test_what_cannot_be_made_and_recipes_in_a_circle_are_refused_in_words() -> None:
    circle = Book.read(["craft 1 egg using 1 hen", "craft 1 hen using 1 egg"], {})
    with raises("task.not_playable"):
        plan(circle, "egg")
    with raises("task.not_playable", "'stone'"):
        plan(circle, "stone")
    with raises("task.invalid_field"):
        Book.read(["make a stick"], {})


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), min_size=1, max_size=4), st.integers(1, 64))
def test_a_recipe_and_its_line_are_the_same(parts: list[tuple[str, int]], count: int) -> None:
    line = f"craft {count} red bed using {', '.join(f'{n} {part}' for part, n in dict(parts).items())}"
    assert str(parse_craft(line)) == line


@pytest.mark.parametrize("tier", ["full", "tiny"])
def test_every_task_of_ours_has_the_depth_of_its_tier_and_a_gold_solution(tier: str) -> None:
    everything = [task for split in ("train", "validation", "test") for task in tasks("textcraft", split, tier=tier)]
    sample = random.Random(0).sample(everything, 120)
    assert {task.tier for task in everything} == {"depth-1", "depth-2", "depth-3", "depth-4"}
    assert all(validate(task).ok for task in sample)
    assert all(depths(book_of(task))[task.payload["goal"]] == int(task.tier[-1]) for task in sample)


def test_no_goal_of_ours_is_in_two_splits_and_every_depth_is_tested() -> None:
    goals = {split: {task.payload["goal"] for task in tasks("textcraft", split)} for split in ("train", "test")}
    assert not goals["train"] & goals["test"]
    assert {task.tier for task in tasks("textcraft", "test")} == {"depth-1", "depth-2", "depth-3", "depth-4"}


def test_generated_tasks_are_the_same_for_the_same_seed_and_unknown_options_are_refused() -> None:
    assert [task.id for task in generate(5, 1, depth=3)] == [task.id for task in generate(5, 1, depth=3)]
    assert {task.tier for task in generate(5, 1, depth=3)} == {"depth-3"}
    with raises("task.bad_option", "depths 1 to 4"):
        generate(1, 1, depth=5)
    with raises("task.bad_option", "depths 1 to 4"):
        tasks("textcraft", "train", depths=(1, 7))
    with raises("task.bad_option"):
        tasks("textcraft", "train", tier="huge")


# -- the published goals --------------------------------------------------------------------------------------------


def test_the_544_published_goals_have_the_published_numbers_and_depths() -> None:
    root = published("agentgym")
    listing = json.loads((root / "textcraft_goals_sorted_listing.json").read_text())
    expected = [(row["goal"].removeprefix("minecraft:").replace("_", " "), row["depth"]) for row in listing]
    assert Minecraft(read_recipes(root)).goals == expected
    found = load_published("textcraft", root)
    assert [(task.id, task.payload["goal"]) for task in found] == [
        (f"textcraft_{number}", goal) for number, (goal, _) in enumerate(expected)
    ]
    assert Counter(task.split for task in found) == {"train": 444, "test": 100}
    assert Counter(task.tier for task in found) == {"depth-1": 125, "depth-2": 291, "depth-3": 117, "depth-4": 11}


@pytest.mark.slow
def test_the_numbers_depend_neither_on_the_order_of_files_nor_on_the_hash_seed(tmp_path: Path) -> None:
    root = published("agentgym")
    files = read_recipes(root)
    shuffled = dict(random.Random(3).sample(list(files.items()), len(files)))
    assert Minecraft(shuffled).goals == Minecraft(files).goals
    clone = tmp_path / "agentenv-textcraft" / "agentenv_textcraft" / "recipes"
    clone.mkdir(parents=True)
    for name, recipe in shuffled.items():
        (clone / name).write_text(json.dumps(recipe))
    code = (
        "import hashlib, sys; from userrl_core.gyms import load_published; "
        "print(hashlib.sha256(repr(load_published('textcraft', sys.argv[1])).encode()).hexdigest())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, folder in (("1", root), ("2", root), ("3", tmp_path))
    }
    assert len(said) == 1


async def test_every_published_goal_is_solved_by_the_demonstrator_in_the_plan_s_turns() -> None:
    everything = load_published("textcraft", published("agentgym"))
    trajectories = await run_episodes(everything, ScriptedPolicy(1.0), horizon=60)
    assert [(t.score, len(t.turns)) for t in trajectories] == [(1.0, min_turns(task)) for task in everything]
    # At most 20 turns are played in the paper, at most 30 in the released configuration.
    assert [sum(min_turns(task) > turns for task in everything) for turns in (20, 30)] == [13, 2]


def test_a_folder_without_recipes_and_a_broken_recipe_are_refused_by_name(tmp_path: Path) -> None:
    with raises("task.file_missing"):
        load_published("textcraft", tmp_path)
    (tmp_path / "textcraft_recipes.json").write_text('{"bed.json": {"type": "minecraft:crafting_shaped"}}')
    with raises("task.invalid_field", "bed.json"):
        load_published("textcraft", tmp_path)


def can_be_made(book: Book, goal: str, turns: int) -> bool:
    """Whether some sequence of so many turns makes the goal: every choice of things to fetch, then every choice of recipes."""
    ways = [
        (recipe.made, recipe.count, list(zip(members, [count for _, count in recipe.parts], strict=True)))
        for recipe in book.needed(goal)
        for members in product(*(book.members(part) for part, _ in recipe.parts))
    ]
    raw = sorted({part for _, _, parts in ways for part, _ in parts if part in book.fetchable})
    return any(
        _made_of(set(fetched), ways, goal, turns - size)
        for size in range(1, min(len(raw), turns - 1) + 1)
        for fetched in combinations(raw, size)
    )


def _made_of(fetched: set[str], ways: list[Any], goal: str, crafts: int) -> bool:
    """Breadth first over what is held, what was fetched being held without end."""
    level: set[frozenset[tuple[str, int]]] = {frozenset()}
    seen = set(level)
    for _ in range(crafts):
        reached = set()
        for held in level:
            for made, count, parts in ways:
                after = dict(held)
                for part, needed in parts:
                    if part not in fetched:
                        after[part] = after.get(part, 0) - needed
                if min(after.values(), default=0) < 0:
                    continue
                if made == goal:
                    return True
                after[made] = after.get(made, 0) + count
                reached.add(frozenset((thing, number) for thing, number in after.items() if number))
        level = reached - seen
        seen |= level
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "goals"), [(1, 125), pytest.param(2, 291, marks=pytest.mark.full)])
def test_no_published_goal_of_depth_1_or_2_can_be_made_in_fewer_turns_than_the_plan_takes(
    depth: int, goals: int
) -> None:
    minecraft = Minecraft(read_recipes(published("agentgym")))
    chosen = [goal for goal, of_depth in minecraft.goals if of_depth == depth]
    assert len(chosen) == goals
    for goal in chosen:
        turns = len(plan(minecraft.book, goal))
        assert can_be_made(minecraft.book, goal, turns), goal
        assert not can_be_made(minecraft.book, goal, turns - 1), goal
