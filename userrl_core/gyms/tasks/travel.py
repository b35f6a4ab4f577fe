"""TravelGym's tasks by tier: ``tiny`` (ours), and the compositions of UserBench table 2."""

from __future__ import annotations

import random
from collections.abc import Sequence

from userrl_core.errors import ConfigError
from userrl_core.gyms.tasks.travel_tiny import tiny_tasks
from userrl_core.records import Task

TIERS = ("tiny",)


def tasks(split: str, tier: str = "tiny") -> Sequence[Task]:
    """Our own tasks of a split. Raises ConfigError for an unknown tier."""
    check_tier(tier)
    return [task for task in tiny_tasks() if task.split == split]


def generate(n: int, seed: int, tier: str = "tiny") -> list[Task]:
    """n tasks of a tier, the same for the same seed. Raises ConfigError when the tier has fewer."""
    check_tier(tier)
    every = tiny_tasks()
    if n > len(every):
        raise ConfigError(f"The tiny tier of gym 'travel' has {len(every)} tasks, fewer than {n}.")
    return random.Random(f"travel/tiny/{seed}").sample(every, n)


def check_tier(tier: str) -> None:
    """Raises ConfigError for an unknown tier."""
    if tier not in TIERS:
        raise ConfigError(f"Gym 'travel' has no tier '{tier}'; it has {', '.join(TIERS)}.")
