"""Draws from a gym's pool of tasks, and checks of the sizes that a pool has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from userrl_core.errors import ConfigError
from userrl_core.records import Task

THINGS = tuple(
    "bell book cart coin dish drum fork gate harp jar key kite lamp mask nail oar pipe quilt ring rope sack salt seed tent".split()  # noqa: SIM905
)
"""Things that tasks of tiny tiers are made of, each one word."""
MAX_REPEATS = 1000
"""Most draws in a row without a new task."""


def distinct_tasks(gym: str, n: int, draw: Callable[[], Task | None]) -> list[Task]:
    """Return n tasks of different ids, in the order of the draws. draw: returns a task, or None for a failed draw.

    Raises ConfigError if no new task comes in `MAX_REPEATS` draws.
    """
    by_id: dict[str, Task] = {}
    repeats = 0
    while len(by_id) < n:
        if repeats > MAX_REPEATS:
            raise ConfigError("task.too_few", f"Gym '{gym}' cannot generate {n} different tasks. Ask for fewer.")
        task = draw()
        repeats = repeats + 1 if task is None or task.id in by_id else 0
        if task is not None:
            by_id.setdefault(task.id, task)
    return list(by_id.values())


def draw_tasks(pool: Sequence[Task], n: int, seed: int | str, name: str) -> list[Task]:
    """Return n tasks of a pool, drawn with the seed. name: of the pool. Raises ConfigError if there are fewer than n."""
    if n > len(pool):
        raise ConfigError("task.too_few", f"{name} has {len(pool)} tasks. Ask for at most that many, not {n}.")
    return Random(seed).sample(pool, n)


def check_sizes(sizes: Iterable[int], most: int, name: str) -> list[int]:
    """Return the sizes. name: of what has them. Raises ConfigError for none, and for one that is not from 1 to ``most``."""
    chosen = list(sizes)
    unknown = [size for size in chosen if isinstance(size, bool) or size not in range(1, most + 1)]
    if unknown or not chosen:
        raise ConfigError("task.bad_option", f"{name} 1 to {most}, not {unknown or 'none'}. Correct the option.")
    return chosen
