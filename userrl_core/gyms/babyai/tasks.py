"""Tasks of BabyAI: pairs of level and seed, with AgentGym's ids. The family of a level is the task's tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from random import Random

from userrl_core.errors import ConfigError
from userrl_core.gyms.babyai.levels import FAMILIES, FAMILY, LEVELS, VERSIONS
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of
from userrl_core.suggest import nearest

SEEDS = 20
"""Seeds of each level in our own tasks (800 tasks in all)."""
TINY = ("GoToRedBallGrey", "GoToRedBall", "GoToObjS6", "GoToLocalS8N7", "PickupDistDebug")
"""The levels of the tiny tier: one room, with one thing to go to or to pick up."""
TINY_SEEDS = 200


def tasks(
    split: str, *, tier: str = "full", families: Iterable[str] = tuple(FAMILIES), levels: Iterable[str] = LEVELS
) -> Sequence[Task]:
    """Return our tasks of a split for the chosen families and levels. tier: ``full``, or ``tiny`` for a small model.

    Raises ConfigError for unknown ones.
    """
    if tier not in ("full", "tiny"):
        raise ConfigError("task.bad_option", f"BabyAI has no tier '{tier}'. Use full or tiny.")
    chosen_families, chosen_levels = list(families), list(levels)
    for name, allowed, kind in ((chosen_families, FAMILIES, "family"), (chosen_levels, FAMILY, "level")):
        for wrong in (option for option in name if option not in allowed):
            raise ConfigError(
                "task.bad_option",
                f"BabyAI has no {kind} '{wrong}'{nearest(wrong, allowed)}. Use one of {', '.join(allowed)}.",
            )
    return [
        task
        for task in (_full() if tier == "full" else _tiny())
        if task.split == split and task.tier in chosen_families and task.payload["level"] in chosen_levels
    ]


def generate(n: int, seed: int) -> list[Task]:
    """Return n tasks on seeds that our own tasks do not use."""
    rng = Random(f"babyai/{seed}")
    numbers = rng.sample(range(SEEDS * len(LEVELS), 10_000 * len(LEVELS)), n)
    return [_task(number) for number in numbers]


@lru_cache(maxsize=1)
def _full() -> tuple[Task, ...]:
    return tuple(_task(number) for number in range(SEEDS * len(LEVELS)))


@lru_cache(maxsize=1)
def _tiny() -> tuple[Task, ...]:
    numbers = (seed * len(LEVELS) + LEVELS.index(level) for seed in range(TINY_SEEDS) for level in TINY)
    return tuple(_task(number, short=True) for number in numbers)


def _task(number: int, *, short: bool = False) -> Task:
    seed, index = divmod(number, len(LEVELS))
    level = LEVELS[index]
    payload = {"level": level, "seed": seed}
    split = split_of(content_hash(payload))  # of level and seed alone: a new version keeps the split
    key = f"babyai_{number}{'_tiny' * short}"
    payload |= {"short": True} if short else {}
    payload |= {"version": VERSIONS[level]} if level in VERSIONS else {}
    return Task("babyai", key, split, payload, source="minigrid", tier=FAMILY[level])
