"""TravelGym's tasks: ``tiny`` for the laptop model (ours), and the tiers and compositions of UserBench table 2."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import overload

from userrl_core.errors import ConfigError
from userrl_core.gyms.pool import draw_tasks
from userrl_core.gyms.travel.options import OptionCounts
from userrl_core.gyms.travel.published import load_published
from userrl_core.gyms.travel.scenario import COMPOSITIONS, Plan, build, make_plan, plan_id
from userrl_core.gyms.travel.tiny import tiny_tasks
from userrl_core.records import Task
from userrl_core.seeding import split_of

__all__ = ["TIERS", "TravelTasks", "generate", "load_published", "tasks"]

OWN = 2000
"""Number of our scenarios per tier, over all splits. `generate` draws any number of others."""
CACHE_SIZE = 512
"""Number of built tasks that a task set keeps."""
_SHARES = {"easy": 0.25, "medium": 0.43, "hard": 0.32}
"""Shares of the tiers in ``all``, after UserBench table 2."""
TIERS = ("tiny", "all", *COMPOSITIONS, *(c for members in COMPOSITIONS.values() for c in members))


class TravelTasks(Sequence[Task]):
    """Scenarios that are built on access, so that a set of thousands is created at once."""

    def __init__(self, plans: Sequence[Plan], counts: OptionCounts) -> None:
        """Keep the plans of one split. counts: options per aspect."""
        self._plans = plans
        self._counts = counts
        self._built: dict[int, Task] = {}

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        if isinstance(index, slice):
            return [self._build(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"There are {len(self)} travel tasks in this set; there is no index {index}.")
        return self._build(index % len(self))

    def _build(self, index: int) -> Task:
        if index not in self._built:
            if len(self._built) >= CACHE_SIZE:
                self._built.clear()
            self._built[index] = build(self._plans[index], self._counts)
        return self._built[index]


def tasks(split: str, tier: str = "all", options: str = "w10n5") -> Sequence[Task]:
    """Return our own tasks of a split.

    tier: ``tiny``, ``all``, a difficulty (``easy``, ``medium``, ``hard``) or a composition (``22`` ... ``444``). options:
    the number of wrong and noise options per aspect. Raises ConfigError for unknown values.
    """
    _check_tier(tier)
    if tier == "tiny":
        return [task for task in tiny_tasks() if task.split == split]
    counts = OptionCounts.parse(options)
    return TravelTasks(_plans(tier, counts)[split], counts)


@lru_cache(maxsize=16)
def _plans(tier: str, counts: OptionCounts) -> dict[str, list[Plan]]:
    by_split: dict[str, list[Plan]] = {"train": [], "validation": [], "test": []}
    for identity, plan in draw_plans(OWN, 0, tier, counts).items():
        by_split[split_of(identity)].append(plan)
    return by_split


def generate(n: int, seed: int, tier: str = "all", options: str = "w10n5") -> list[Task]:
    """Return n distinct tasks of a tier. Raises ConfigError if the tier has fewer."""
    _check_tier(tier)
    if tier == "tiny":
        return draw_tasks(tiny_tasks(), n, f"travel/tiny/{seed}", "The tiny tier of gym 'travel'")
    counts = OptionCounts.parse(options)
    return [build(plan, counts) for plan in draw_plans(n, seed, tier, counts).values()]


def draw_plans(n: int, seed: int, tier: str, counts: OptionCounts) -> dict[str, Plan]:
    """Return n distinct plans of a tier by their task ids."""
    rng = random.Random(f"travel/{tier}/{seed}")
    plans: dict[str, Plan] = {}
    while len(plans) < n:
        level = rng.choices(list(_SHARES), list(_SHARES.values()))[0] if tier == "all" else tier
        composition = rng.choice(COMPOSITIONS[level]) if level in COMPOSITIONS else level
        plan = make_plan(composition, rng)
        plans.setdefault(plan_id(plan, counts), plan)
    return plans


def _check_tier(tier: str) -> None:
    if tier not in TIERS:
        raise ConfigError("task.bad_option", f"Gym 'travel' has no tier '{tier}'. It has {', '.join(TIERS)}.")
