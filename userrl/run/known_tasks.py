"""Our own and the imported tasks of a gym, with look-up by id or by seed."""

from __future__ import annotations

from userrl.machine.home import imported_tasks
from userrl_core.errors import ConfigError
from userrl_core.gyms import tasks
from userrl_core.gyms.taskfile import read_tasks
from userrl_core.records import Task
from userrl_core.seeding import derive_seed

SPLITS = ("train", "validation", "test")


def read_imported(gym: str) -> list[Task]:
    """Return the imported tasks of a gym. Empty if none were imported."""
    path = imported_tasks(gym)
    return read_tasks(path) if path.is_file() else []


def every_task(gym: str) -> list[Task]:
    """Return our own and the imported tasks of a gym, in the order of splits."""
    return [task for split in SPLITS for task in tasks(gym, split)] + read_imported(gym)


def task_by_id(gym: str, task_id: str) -> Task:
    """Return the task with this id or beginning of an id. Raises ConfigError if none or several match."""
    every = every_task(gym)
    matches = [task for task in every if task.id == task_id] or [task for task in every if task.id.startswith(task_id)]
    if len(matches) != 1:
        count = "no task" if not matches else f"{len(matches)} tasks"
        raise ConfigError(
            "task.no_such_task",
            f"Gym '{gym}' has {count} with an id that begins with '{task_id}'. See userrl tasks list {gym}.",
        )
    return matches[0]


def task_by_seed(gym: str, split: str, seed: int) -> Task:
    """Return a task of ours, drawn by the seed. Raises ConfigError for a split without tasks."""
    candidates = tasks(gym, split)
    if not candidates:
        raise ConfigError("task.none_left", f"Gym '{gym}' has no {split} tasks. Try another --split.")
    return candidates[derive_seed("play", gym, seed) % len(candidates)]
