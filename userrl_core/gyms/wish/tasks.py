"""Tasks of WishGym: an outfit of k garments, each wished in a colour that only the user knows (ours).

A task holds the garments with their colours, and k + 1 options: the best one, and for every garment one that is wrong in
that garment only. Every k has the same number of tasks, each with its own content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from userrl_core.gyms.pool import check_sizes, distinct_tasks, draw_tasks
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

GARMENTS = ("belt", "coat", "gloves", "hat", "scarf", "shirt", "shoes", "socks")
COLOURS = ("black", "blue", "gold", "green", "grey", "pink", "red", "white")
OPTIONS = ("ash", "bay", "elm", "fig", "fir", "gum", "oak", "yew")
MOST = 5
PER_SIZE = 552


def tasks(split: str, *, sizes: Iterable[int] = range(1, MOST + 1)) -> Sequence[Task]:
    """Return our tasks of a split with the given numbers of preferences. Raises ConfigError for an unknown number."""
    chosen = check_sizes(sizes, MOST, "WishGym has numbers of preferences")
    return [task for size in chosen for task in _of_size(size) if task.split == split]


def generate(n: int, seed: int, *, size: int = 2) -> list[Task]:
    """Return n tasks of one size. Raises ConfigError if there are fewer than n."""
    check_sizes([size], MOST, "WishGym has numbers of preferences")
    return draw_tasks(_of_size(size), n, seed, "Each size of WishGym")


@lru_cache(maxsize=MOST)
def _of_size(size: int) -> tuple[Task, ...]:
    rng = Random(f"wish/{size}")
    return tuple(distinct_tasks("wish", PER_SIZE, lambda: _task(rng, size)))


def _task(rng: Random, size: int) -> Task:
    colour_of = dict(zip(rng.sample(GARMENTS, size), rng.sample(COLOURS, size), strict=True))
    best, *wrong = rng.sample(OPTIONS, size + 1)
    payload: dict[str, Any] = {
        "wished": colour_of,
        "best": best,
        "wrong": dict(zip(colour_of, wrong, strict=True)),
        "order": rng.sample([best, *wrong], size + 1),
    }
    digest = content_hash(payload)
    return Task("wish", digest, split_of(digest), payload, tier=f"size-{size}")
