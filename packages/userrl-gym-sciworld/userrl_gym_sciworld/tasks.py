"""Tasks of SciWorld: a kind of task and its variation, with AgentGym's ids (``sciworld_N``).

AgentGym leaves out seven of the simulator's thirty kinds (growing, inclined planes, genetics). The family of a kind is the
task's tier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from random import Random

from userrl_core.errors import ConfigError
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of
from userrl_core.suggest import nearest

FAMILIES: dict[str, dict[str, int]] = {
    "matter": {"boil": 30, "melt": 30, "freeze": 30, "change-the-state-of-matter-of": 30},
    "measure": {
        "use-thermometer": 540,
        "measure-melting-point-known-substance": 436,
        "measure-melting-point-unknown-substance": 300,
    },
    "power": {"power-component": 20, "power-component-renewable-vs-nonrenewable-energy": 20},
    "test-cond": {"test-conductivity": 900, "test-conductivity-of-unknown-substances": 600},
    "find": {"find-living-thing": 300, "find-non-living-thing": 300, "find-plant": 300, "find-animal": 300},
    "chem-mix": {
        "chemistry-mix": 32,
        "chemistry-mix-paint-secondary-color": 36,
        "chemistry-mix-paint-tertiary-color": 36,
    },
    "lifespan": {
        "lifespan-longest-lived": 125,
        "lifespan-shortest-lived": 125,
        "lifespan-longest-lived-then-shortest-lived": 125,
    },
    "life-stages": {"identify-life-stages-1": 14, "identify-life-stages-2": 10},
}
"""Number of variations of each kind of task by family, in the simulator's order."""
PER_KIND = 40
"""Variations of each kind in our own tasks. All variations would be 4,639, nearly half about conductivity."""


def tasks(
    split: str,
    *,
    families: Iterable[str] = tuple(FAMILIES),
    kinds: Iterable[str] | None = None,
    variations: int = PER_KIND,
) -> Sequence[Task]:
    """Return our tasks of a split, families and kinds: at most so many variations of a kind.

    Raises ConfigError for an unknown family or kind.
    """
    chosen_families, chosen_kinds = list(families), None if kinds is None else list(kinds)
    known_kinds = [kind for family in FAMILIES.values() for kind in family]
    for names, of, noun in ((chosen_families, list(FAMILIES), "family"), (chosen_kinds or [], known_kinds, "kind")):
        for wrong in (name for name in names if name not in of):
            raise ConfigError(
                "task.bad_option", f"SciWorld has no {noun} '{wrong}'{nearest(wrong, of)}. It has {', '.join(of)}."
            )
    return [
        task
        for task in _all()
        if task.split == split
        and task.tier in chosen_families
        and (chosen_kinds is None or task.payload["task"] in chosen_kinds)
        and task.payload["variation"] < variations
    ]


def generate(n: int, seed: int) -> list[Task]:
    """Return n of the variations that our own tasks leave out."""
    return Random(seed).sample([task for task in _all() if task.payload["variation"] >= PER_KIND], n)


@lru_cache(maxsize=1)
def _all() -> tuple[Task, ...]:
    all_tasks: list[Task] = []
    for family, kinds in FAMILIES.items():
        for kind, variations in kinds.items():
            for variation in range(variations):
                payload = {"task": kind, "variation": variation}
                split = split_of(content_hash(payload))
                all_tasks.append(
                    Task("sciworld", f"sciworld_{len(all_tasks)}", split, payload, source="scienceworld", tier=family)
                )
    return tuple(all_tasks)
