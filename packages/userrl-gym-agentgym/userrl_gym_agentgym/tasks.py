"""Tasks of AgentGym's environments: item ids (``textcraft_12``), whose contents only the server knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from userrl_core.errors import ConfigError
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of
from userrl_core.suggest import nearest
from userrl_gym_agentgym.protocols import PROTOCOLS

MOST = 10_000
"""Items listed without ``count``. searchqa has 221,328."""


def tasks(
    split: str,
    *,
    env: str = "textcraft",
    first: int = 0,
    count: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Sequence[Task]:
    """Return the items ``first`` to ``first + count`` of an environment, split by a hash of the id.

    env: an AgentGym environment, or ``userrl`` for a gym behind `userrl serve-gym`. options: further fields of /create.
    Raises ConfigError for an unknown environment or unknown items.
    """
    if env not in PROTOCOLS:
        raise ConfigError(
            "task.bad_option",
            f"There is no environment '{env}'{nearest(env, PROTOCOLS)}. Use one of {', '.join(PROTOCOLS)}.",
        )
    task_count = PROTOCOLS[env].tasks
    last = min(task_count, first + MOST) if count is None else first + count
    if not 0 <= first < last <= task_count:
        raise ConfigError(
            "task.bad_option",
            f"Environment {env} has the items 0 to {task_count - 1}. Set first and count to some of them.",
        )
    return [task for task in _items(env, first, last, tuple(sorted((options or {}).items()))) if task.split == split]


def generate(n: int, seed: int, *, env: str = "textcraft") -> list[Task]:
    """Return n items."""
    all_items = [task for split in ("train", "validation", "test") for task in tasks(split, env=env)]
    return Random(seed).sample(all_items, n)


@lru_cache(maxsize=8)
def _items(env: str, first: int, last: int, options: tuple[tuple[str, Any], ...]) -> tuple[Task, ...]:
    return tuple(
        Task(
            "agentgym",
            f"{env}_{number}",
            split_of(content_hash([env, number])),
            {"env": env, "item": number} | ({"options": dict(options)} if options else {}),
            source=f"agentgym:{env}",
            tier=env,
        )
        for number in range(first, last)
    )
