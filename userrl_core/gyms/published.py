"""One folder of published data: its gyms, in the papers' own splits (UserRL table 2).

The folder holds a part per project (``userrl``, ``userbench``, ``tau-bench``, ``agentgym``), each with the layout of
its repository. Test tasks are the papers'. Training tasks are those in the released combined list (2,426). The
paper's table counts all 460 of FunctionGym instead of the list's 200 (edition ``paper``: 2,686). Gyms that are never
trained on are missing from the list and keep their own training rows. Validation is a share of the training tasks, by
a hash of the task's id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml

from userrl_core.errors import MissingFileError, TaskError
from userrl_core.gyms.registry import load_published, part
from userrl_core.gyms.released import check_names, read_parquet, text_field
from userrl_core.records import Message, Task
from userrl_core.seeding import content_hash, validation_of
from userrl_core.user_path import no_folder

Edition = Literal["released", "paper"]
PARTS = ("userrl", "userbench", "tau-bench", "agentgym")
"""The subfolders of a folder of published data."""
PAPER_GYMS = ("travel", "turtle", "function", "tau", "persuade", "intention", "telepathy", "search")
"""The eight gyms of UserRL's table 3. ``evaluate.gyms: all`` means these."""
LIST = "data/alltrain_multiturn/train.parquet"
LISTED = {
    "travel": ("TravelGym", "id"),
    "turtle": ("TurtleGym", "title"),
    "function": ("FunctionGym", "id"),
    "tau": ("TauGym", "id"),
    "persuade": ("PersuadeGym", "id"),
}
"""The gyms of the combined list, with their name there and the field that names a task."""

ROWS = {
    "travel": "travel_multiturn_onechoice",
    "turtle": "turtle_multiturn",
    "function": "function_multiturn",
    "tau": "tau_multiturn",
    "persuade": "persuasion_multiturn",
    "intention": "intention_multiturn",
    "telepathy": "telepathy_multiturn",
    "search": "bamboogle_multiturn",
}
"""Folder of a gym's released prompts, under ``data``."""
TOOLS = ("eval/schema/interact_tool.yaml", "schema/interact_tool.yaml")
"""The agent's tool in UserRL's and UserBench's evaluation."""
BY_TITLE = ("turtle", "telepathy")
"""The gyms whose rows name a task by its title. All others use its id."""


def has_loader(gym: str) -> bool:
    """Return whether the gym can read published tasks at all."""
    return hasattr(part(gym, "tasks"), "load_published")


@lru_cache(maxsize=32)
def published_tasks(
    gym: str, folder: Path, edition: Edition = "released", validation: float = 0.05
) -> tuple[Task, ...]:
    """Return the published tasks of a gym from one folder of published data, with those whose data are missing.

    Raises MissingFileError if the folder has none of them, and TaskError for a bad row.
    """
    root = folder / ("userrl" if gym in PAPER_GYMS else "agentgym")
    if not has_loader(gym):
        raise MissingFileError("task.not_published", f"Gym '{gym}' has no published tasks.")
    if why := no_folder(root):
        raise MissingFileError("task.file_missing", f"{root} is no folder ({why}).")
    tasks = load_published(gym, root)
    if gym in LISTED:
        names_in_list = None if gym == "function" and edition == "paper" else _listed(root, gym)
        names = [task.payload["title"] if LISTED[gym][1] == "title" else task.id for task in tasks]
        if names_in_list is not None:
            check_names(names_in_list, names, str(root / LIST), f"the tasks of {gym}")
            tasks = [t for t, name in zip(tasks, names, strict=True) if t.split == "test" or name in names_in_list]
    return tuple(_with_validation(task, validation) for task in tasks)


@lru_cache(maxsize=32)
def released_prompts(rows: Path, field: str) -> dict[str, list[Message]]:
    """Return the messages of every released row of a folder, by a field of its ``reward_model``."""
    prompts: dict[str, list[Message]] = {}
    for path in (rows / "train.parquet", rows / "test.parquet"):
        for index, row in enumerate(read_parquet(path, ["prompt", "reward_model"]) if path.is_file() else ()):
            prompts[text_field(row["reward_model"], field, path, index)] = row["prompt"]
    return prompts


def with_prompt(task: Task, folder: Path, config: Mapping[str, Any] | None = None) -> Task:
    """Return the task with its released prompt, for prompt style ``released``; unchanged if it has no such prompt.

    config: the gym's options. Travel's say which of the released prompts: UserRL's, or with preset ``userbench`` UserBench's for
    one choice per aspect or for several.
    """
    if task.gym not in ROWS:
        return task
    by_title = task.gym in BY_TITLE
    rows = folder / "userrl" / "data" / ROWS[task.gym]
    if task.gym == "travel":
        rows = _travel_rows(task, folder, config or {})
    prompts = released_prompts(rows, "title" if by_title else "id")
    prompt = prompts.get(task.payload["title"] if by_title else task.id)
    if prompt is None:
        return task
    tool = released_tool(rows.parent.parent)
    texts = {"prompt": prompt, **({} if tool is None else {"tool": tool})}
    return dataclasses.replace(task, payload={**task.payload, **texts})


@lru_cache(maxsize=8)
def released_tool(root: Path) -> dict[str, Any] | None:
    """Return the function schema that a repository's evaluation gives a served agent; None if the copy lacks it."""
    path = next((root / name for name in TOOLS if (root / name).is_file()), None)
    if path is None:
        return None
    try:
        return dict(yaml.safe_load(path.read_text(encoding="utf-8"))["tool_schema"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        raise TaskError("task.file_unreadable", f"{path} holds no tool_schema. Clone the repository again.") from None


def _travel_rows(task: Task, folder: Path, config: Mapping[str, Any]) -> Path:
    """Return the folder of a travel task's rows.

    UserRL trains and evaluates on the rows of the compositions. ``travel_multiturn_onechoice`` has all of them with an earlier
    prompt, which nothing there uses.
    """
    project = "userbench" if config.get("preset") == "userbench" else "userrl"
    one_choice = "_onechoice" if config.get("one_choice_per_aspect", True) else ""
    return folder / project / "data" / f"travel{task.payload.get('composition', '')}_multiturn{one_choice}"


def playable(tasks: tuple[Task, ...]) -> list[Task]:
    """Return the tasks that were published with their data."""
    return [task for task in tasks if "unplayable" not in task.payload]


def why_absent(gym: str, folder: Path, edition: Edition = "released") -> str:
    """Return why a gym cannot run on published tasks from this folder, as part of a sentence; "" if it can.

    Raises TaskError for an unreadable file.
    """
    try:
        tasks = published_tasks(gym, folder, edition)
    except MissingFileError as error:
        return str(error).rstrip(".")
    if playable(tasks):
        return ""
    return str(next((task.payload["unplayable"] for task in tasks), f"{folder} holds no task of it"))


def _listed(root: Path, gym: str) -> frozenset[str]:
    name, field = LISTED[gym]
    rows = [
        (row["reward_model"], root / LIST, at) for at, row in enumerate(read_parquet(root / LIST, ["reward_model"]))
    ]
    of_gym = [(row, path, at) for row, path, at in rows if text_field(row, "env_name", path, at) == name]
    task_names = frozenset(text_field(row, field, path, at) for row, path, at in of_gym)
    if not task_names:
        raise TaskError(
            "task.file_missing",
            f"{root / LIST} lists no task of {name}. Give a complete copy of the released repository.",
        )
    return task_names


def _with_validation(task: Task, share: float) -> Task:
    # By the id: the payload of some gyms holds the folder, and a task must not change its split with it.
    if task.split == "test":
        return task
    return dataclasses.replace(task, split=validation_of(content_hash([task.gym, task.id]), share))
