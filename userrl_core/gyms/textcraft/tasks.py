"""Tasks of TextCraft: our own world of recipes, a tiny tier for models of laptop size, and the published 544 goals.

A task shows every recipe that can take part in making its goal, and up to ten others that use the same things (as many as
AgentGym). Our own world's tasks are split by goal, so that no test goal was trained on with other distractors. A task of the
tiny tier has freshly drawn recipes, so that nothing can be learnt by heart.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from random import Random

from userrl_core.errors import ConfigError
from userrl_core.gyms.pool import THINGS, check_sizes, distinct_tasks
from userrl_core.gyms.textcraft.crafting import Book, CraftingRecipe, depths
from userrl_core.gyms.textcraft.minecraft import Minecraft, read_recipes
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

DEPTHS = (1, 2, 3, 4)
DISTRACTORS = 10
DRAWS = 8
"""Number of tasks per goal in our own world. They differ in the distractors and the order of recipes."""
GOALS = 544
"""Number of goals that AgentGym's recipes make."""
TEST_GOALS = 100
"""Number of published goals held out, equal to the size of AgentGym-RL's list of test ids. The repository lacks the list."""
PER_DEPTH = 552


def tasks(split: str, *, tier: str = "full", depths: Iterable[int] = DEPTHS) -> Sequence[Task]:
    """Return our tasks of a split and of the given depths. tier: ``full`` (our world) or ``tiny``. Raises ConfigError
    for others.
    """
    chosen = check_sizes(depths, DEPTHS[-1], "TextCraft has depths")
    if tier not in ("full", "tiny"):
        raise ConfigError("task.bad_option", f"TextCraft has no tier '{tier}'. Use full or tiny.")
    pool = _world() if tier == "full" else tuple(chain.from_iterable(_tiny(depth) for depth in chosen))
    tiers = {f"depth-{depth}" for depth in chosen}
    return [task for task in pool if task.split == split and task.tier in tiers]


def generate(n: int, seed: int, *, depth: int = 2) -> list[Task]:
    """Return n tasks of the tiny tier. Raises ConfigError for an unknown depth."""
    check_sizes([depth], DEPTHS[-1], "TextCraft has depths")
    return _draw(n, depth, Random(f"textcraft/{depth}/{seed}"))


def load_published(root: Path) -> list[Task]:
    """Return the 544 published goals with AgentGym's ids ``textcraft_N``, from a copy of its repository or its recipes.

    Raises MissingFileError if no recipes are found, and TaskError for an unreadable one.
    """
    minecraft = Minecraft(read_recipes(root))
    if (count := len(minecraft.goals)) != GOALS:
        sentence = f"The recipes in {root} make {count} goals, not AgentGym's {GOALS}: its ids name other goals."
        warnings.warn(sentence, UserWarning, stacklevel=2)
    ids = [f"textcraft_{number}" for number in range(count)]
    test = set(sorted(ids, key=lambda key: content_hash(["textcraft", key]))[:TEST_GOALS])
    published = []
    for key, (goal, depth) in zip(ids, minecraft.goals, strict=True):
        payload = _shown(minecraft.book, goal, Random(key))
        split = "test" if key in test else "train"
        published.append(Task("textcraft", key, split, payload, source="published:agentgym", tier=f"depth-{depth}"))  # type: ignore[arg-type]
    return published


@lru_cache(maxsize=1)
def _world() -> tuple[Task, ...]:
    data = json.loads((Path(__file__).parent / "world.json").read_text(encoding="utf-8"))
    book = Book.read(data["recipes"], data["kinds"])
    world_tasks = []
    for goal, depth in depths(book).items():
        for draw in range(DRAWS if depth else 0):
            payload = _shown(book, goal, Random(f"textcraft/{goal}/{draw}"))
            split = split_of(content_hash(["textcraft", goal]))
            world_tasks.append(Task("textcraft", content_hash(payload), split, payload, tier=f"depth-{depth}"))
    return tuple({task.id: task for task in world_tasks}.values())


def _shown(book: Book, goal: str, rng: Random) -> dict[str, object]:
    """Return the payload of a task: all needed recipes, and others that use the same things."""
    needed = book.needed(goal)
    parts = {part for recipe in needed for part, _ in recipe.parts}
    distractors = [r for r in book.recipes if r not in needed and any(part in parts for part, _ in r.parts)]
    distractors = list(dict.fromkeys(distractors))
    lines = [str(recipe) for recipe in (*needed, *rng.sample(distractors, min(len(distractors), DISTRACTORS)))]
    rng.shuffle(lines)
    part_names = {part for line in Book.read(lines, {}).recipes for part, _ in line.parts}
    return {
        "goal": goal,
        "recipes": lines,
        "kinds": {kind: list(members) for kind, members in book.kinds.items() if kind in part_names},
    }


@lru_cache(maxsize=len(DEPTHS))
def _tiny(depth: int) -> tuple[Task, ...]:
    return tuple(_draw(PER_DEPTH, depth, Random(f"textcraft/{depth}")))


def _draw(n: int, depth: int, rng: Random) -> list[Task]:
    """Draw n different tasks: a chain of recipes, some with a second fetched thing, and unrelated recipes."""

    def draw() -> Task:
        names = rng.sample(THINGS, len(THINGS))
        links = [names.pop() for _ in range(depth + 1)]
        fetched = [links[-1]]
        recipes = []
        for product, part in pairwise(links):
            parts = [part]
            if rng.random() < 0.5:
                fetched.append(names.pop())
                parts.append(fetched[-1])
            recipes.append(CraftingRecipe(product, 1, tuple((part, 1) for part in parts)))
        recipes += [
            CraftingRecipe(names.pop(), 1, ((rng.choice([*links[1:], *fetched]), 1),)) for _ in range(rng.randint(0, 2))
        ]
        rng.shuffle(recipes)
        payload = {"goal": links[0], "recipes": [str(recipe) for recipe in recipes], "kinds": {}, "short": True}
        digest = content_hash(payload)
        return Task("textcraft", digest, split_of(digest), payload, tier=f"depth-{depth}")

    return distinct_tasks("textcraft", n, draw)
