"""Tosses: generated, and split by a hash of their content."""

from collections.abc import Sequence

from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of


def generate(n: int, seed: int) -> list[Task]:
    """Return n tosses, the same for the same seed."""
    payloads = [{"side": ("heads", "tails")[(seed + i) % 2], "toss": seed + i} for i in range(n)]
    hashes = [content_hash(payload) for payload in payloads]
    return [Task("coin", key, split_of(key), payload) for key, payload in zip(hashes, payloads, strict=True)]


def tasks(split: str) -> Sequence[Task]:
    """Return the tosses of a split."""
    return [task for task in generate(200, seed=0) if task.split == split]
