"""Tasks on OpenEnv servers: the arguments of a reset, of which one counts, such as the seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of


def tasks(
    split: str, *, env: str = "openenv", field: str = "seed", first: int = 0, count: int = 1000, **reset: Any
) -> Sequence[Task]:
    """Return the tasks ``first`` to ``first + count``, split by a hash.

    env: a name for the environment, which the tasks' ids have. field: the argument of the reset that counts. reset: its other
    arguments, whose hash the ids have.
    """
    every_task = (_task(env, field, number, reset) for number in range(first, first + count))
    return [task for task in every_task if task.split == split]


def generate(n: int, seed: int) -> list[Task]:
    """Return n tasks of the default environment."""
    return [_task("openenv", "seed", number, {}) for number in Random(seed).sample(range(10 * n), n)]


def _task(env: str, field: str, number: int, others: Mapping[str, Any]) -> Task:
    reset = {**others, field: number}
    name = f"{env}_{number}" + (f"_{content_hash(dict(others))[:8]}" if others else "")
    key = split_of(content_hash([env, reset]))
    return Task("openenv", name, key, {"reset": reset}, source=f"openenv:{env}", tier=env)
