"""Tasks of ErrandGym: a fresh chain of things for each task, so that nothing can be learnt by heart (ours).

A task of depth d is a chain of d + 1 names. Every depth has as many tasks as depth 1 has chains, each chain once. A draw
from all tasks is therefore even over the depths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import permutations
from random import Random

from userrl_core.gyms.pool import THINGS, check_sizes, draw_tasks
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

DEEPEST = 8
PER_DEPTH = len(THINGS) * (len(THINGS) - 1)


def tasks(split: str, *, depths: Iterable[int] = range(1, 6)) -> Sequence[Task]:
    """Return our tasks of a split at the given depths. Raises ConfigError for an unknown depth."""
    chosen = check_sizes(depths, DEEPEST, "ErrandGym has depths")
    return [task for depth in chosen for task in _of_depth(depth) if task.split == split]


def generate(n: int, seed: int, *, depth: int = 2) -> list[Task]:
    """Return n tasks of one depth. Raises ConfigError if there are fewer than n."""
    check_sizes([depth], DEEPEST, "ErrandGym has depths")
    return draw_tasks(_of_depth(depth), n, seed, "Each depth of ErrandGym")


@lru_cache(maxsize=DEEPEST)
def _of_depth(depth: int) -> tuple[Task, ...]:
    rng = Random(f"errand/{depth}")
    if depth == 1:
        chains = [list(pair) for pair in permutations(THINGS, 2)]
        rng.shuffle(chains)
    else:
        # A dictionary keeps the order of drawing, which a set does not: tasks are the same in every process.
        unique_chains: dict[tuple[str, ...], None] = {}
        while len(unique_chains) < PER_DEPTH:
            unique_chains[tuple(rng.sample(THINGS, depth + 1))] = None
        chains = [list(chain) for chain in unique_chains]
    return tuple(_task(chain) for chain in chains)


def _task(chain: list[str]) -> Task:
    digest = content_hash(chain)
    # The content decides the split, so no task is in two of them.
    return Task("errand", digest, split_of(digest), {"chain": chain}, tier=f"depth-{len(chain) - 1}")
