"""The number of tasks in an epoch: the available ones, minus those that demonstrations take out of the RL set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from curricula.merge import Merged, Rank, gyms_of
from curricula.spec import FOLDER
from userrl_core.errors import ConfigError
from userrl_core.gyms.published import playable, published_tasks
from userrl_core.gyms.registry import names, tasks

MAX_PER_GYM = 0.5
"""Share of a gym's training tasks that may be demonstrated. The rest is left for reinforcement learning (ours)."""

Counted = Callable[[str, str, float], int | None]
"""Counts the published training tasks of a gym from its name, their place and the validation share; None if not available."""


def count_epochs(merged: Merged, counted: Counted | None = None) -> bool:
    """Write the pool size into every stage given in epochs. A stage without available tasks keeps rl_tasks.

    Return whether anything was written.
    """
    stages, wrote = merged.get("stages"), False
    if not isinstance(stages, list):
        return False
    for stage in stages:
        if isinstance(stage, dict) and stage.get("epochs") is not None and (size := _pool(merged, stage, counted)):
            stage["pool"], wrote = size, True
            if size != merged.get("rl_tasks") and merged.get("rl_tasks") is not None:
                merged.set("rl_tasks", size, "counted", Rank.PROFILE, "ours: the training tasks that are there")
    return wrote


def _pool(merged: Merged, stage: Mapping[str, Any], counted: Counted | None) -> int | None:
    sizes: list[int] = []
    for gym in dict.fromkeys(gyms_of(stage)):
        size = _size(merged, stage, gym, counted)
        if size is None:
            return None
        sizes.append(size)
    return max(sum(sizes) - _demonstrated(merged, sizes), 1)


def _size(merged: Merged, stage: Mapping[str, Any], gym: str, counted: Counted | None) -> int | None:
    options = {**(merged.get(f"gyms.{gym}.tasks") or {}), **((stage.get("tasks") or {}).get(gym) or {})}
    published = merged.get(f"gyms.{gym}.published")
    if published == FOLDER:
        edition, share = merged.get("published", "released"), float(merged.get("split.validation", 0.05))
        tasks_there = playable(published_tasks(gym, Path(str(merged.get("data_folder"))), edition, share))
        return sum(task.split == "train" for task in tasks_there)
    if published is not None:
        share = float(merged.get("split.validation", 0.05))
        return counted(gym, str(published), share) if counted is not None else None
    if gym not in names():
        return None
    try:
        return len(tasks(gym, "train", **options))
    except (ConfigError, ImportError):  # said where the gym is asked for its tasks
        return None


def _demonstrated(merged: Merged, sizes: list[int]) -> int:
    """Return the most tasks that demonstrations use up: one per kept trajectory, none without distillation."""
    if merged.get("cold_start.data") is not None:
        return 0
    if not merged.get("cold_start.enabled", True) and merged.get("model.path") is not None:
        return 0
    attempts, episodes = int(merged.get("demonstrations.attempts", 1)), merged.get("demonstrations.episodes")
    limits = [int(size * MAX_PER_GYM) for size in sizes]
    if episodes is not None:
        limits = [min(size, max(1, int(episodes) // max(attempts, 1))) for size in limits]
    return min(int(merged.get("demonstrations.top_k", 1000)), sum(limits))
