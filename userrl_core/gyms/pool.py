"""Draws from a gym's pool of tasks, and checks of the sizes that a pool has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from userrl_core.errors import ConfigError
from userrl_core.records import Task


def draw_tasks(pool: Sequence[Task], n: int, seed: int | str, name: str) -> list[Task]:
    """Return n tasks of a pool, drawn with the seed. name: of the pool. Raises ConfigError if there are fewer than n."""
    if n > len(pool):
        raise ConfigError("task.too_few", f"{name} has {len(pool)} tasks. Ask for at most that many, not {n}.")
    return Random(seed).sample(pool, n)


def check_sizes(sizes: Iterable[int], most: int, name: str) -> list[int]:
    """Return the sizes. name: of what has them. Raises ConfigError for none, and for one that is not from 1 to ``most``."""
    chosen = list(sizes)
    unknown = [size for size in chosen if size not in range(1, most + 1)]
    if unknown or not chosen:
        raise ConfigError("task.bad_option", f"{name} 1 to {most}, not {unknown or 'none'}. Correct the option.")
    return chosen
