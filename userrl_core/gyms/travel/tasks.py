"""TravelGym's tasks: ``tiny`` for the laptop model (ours), and the tiers and compositions of UserBench table 2."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import overload

from userrl_core.errors import ConfigError
from userrl_core.gyms.travel.options import OptionCounts
from userrl_core.gyms.travel.published import load_published
from userrl_core.gyms.travel.scenario import COMPOSITIONS, Plan, build, make_plan, plan_id
from userrl_core.gyms.travel.tiny import tiny_tasks
from userrl_core.records import Task
from userrl_core.seeding import split_of

__all__ = ["TIERS", "TravelTasks", "generate", "load_published", "tasks"]

OWN = 2000
"""Scenarios of ours per tier, all splits together; `generate` makes any number of others."""
KEPT = 512
"""Built tasks that a task set keeps for the next look."""
_SHARES = {"easy": 0.25, "medium": 0.43, "hard": 0.32}
"""Shares of the tiers in ``all``, after UserBench table 2."""
TIERS = ("tiny", "all", *COMPOSITIONS, *(c for members in COMPOSITIONS.values() for c in members))


class TravelTasks(Sequence[Task]):
    """Scenarios that are built when they are looked at, so that having thousands costs nothing."""

    def __init__(self, plans: Sequence[Plan], counts: OptionCounts) -> None:
        """plans: of one split. counts: options per aspect."""
        self._plans = plans
        self._counts = counts
        self._made: dict[int, Task] = {}

    def __len__(self) -> int:
        return len(self._plans)

    @overload
    def __getitem__(self, at: int) -> Task: ...
    @overload
    def __getitem__(self, at: slice) -> list[Task]: ...
    def __getitem__(self, at: int | slice) -> Task | list[Task]:
        if isinstance(at, slice):
            return [self._build(i) for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(f"There are {len(self)} travel tasks here; {at} is none of them.")
        return self._build(at % len(self))

    def _build(self, at: int) -> Task:
        if at not in self._made:
            if len(self._made) >= KEPT:
                self._made.clear()
            self._made[at] = build(self._plans[at], self._counts)
        return self._made[at]


def tasks(split: str, tier: str = "all", options: str = "w10n5") -> Sequence[Task]:
    """Our own tasks of a split.

    tier: ``tiny``, ``all``, a difficulty (``easy``, ``medium``, ``hard``) or a composition (``22`` ... ``444``). options:
    how many wrong and noise options an aspect has. Raises ConfigError for values that do not exist.
    """
    _check(tier)
    if tier == "tiny":
        return [task for task in tiny_tasks() if task.split == split]
    counts = OptionCounts.parse(options)
    return TravelTasks(_plans(tier, counts)[split], counts)


@lru_cache(maxsize=16)
def _plans(tier: str, counts: OptionCounts) -> dict[str, list[Plan]]:
    found: dict[str, list[Plan]] = {"train": [], "validation": [], "test": []}
    for identity, plan in _draw(OWN, 0, tier, counts).items():
        found[split_of(identity)].append(plan)
    return found


def generate(n: int, seed: int, tier: str = "all", options: str = "w10n5") -> list[Task]:
    """n distinct tasks of a tier, the same for the same seed. Raises ConfigError when the tier has fewer."""
    _check(tier)
    if tier == "tiny":
        every = tiny_tasks()
        if n > len(every):
            raise ConfigError(f"The tiny tier of gym 'travel' has {len(every)} tasks, fewer than {n}.")
        return random.Random(f"travel/tiny/{seed}").sample(every, n)
    counts = OptionCounts.parse(options)
    return [build(plan, counts) for plan in _draw(n, seed, tier, counts).values()]


def _draw(n: int, seed: int, tier: str, counts: OptionCounts) -> dict[str, Plan]:
    rng = random.Random(f"travel/{tier}/{seed}")
    found: dict[str, Plan] = {}
    while len(found) < n:
        level = rng.choices(list(_SHARES), list(_SHARES.values()))[0] if tier == "all" else tier
        composition = rng.choice(COMPOSITIONS[level]) if level in COMPOSITIONS else level
        plan = make_plan(composition, rng)
        found.setdefault(plan_id(plan, counts), plan)
    return found


def _check(tier: str) -> None:
    if tier not in TIERS:
        raise ConfigError(f"Gym 'travel' has no tier '{tier}'; it has {', '.join(TIERS)}.")
