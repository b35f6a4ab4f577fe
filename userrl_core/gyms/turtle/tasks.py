"""TurtleGym's tasks: stories with a visible surface, a hidden bottom, and weighted criteria for an explanation.

Each of our criteria has a pattern of word stems (see `gyms.stemming`), so that an explanation can be graded without a model.
Our stories also list further questions with the answer Yes or No.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from userrl_core.errors import TaskError
from userrl_core.gyms.pool import draw_tasks
from userrl_core.gyms.released import check_same, read_json, released_splits, text_field
from userrl_core.gyms.stemming import read_pattern
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

RELEASED_STORIES = Path("gyms/TurtleGym/turtlegym/data/all_stories_refined.json")

VALIDATION = 0.1
"""Share of our non-test stories in the validation split. 5 % would be only two."""


def tasks(split: str) -> Sequence[Task]:
    """Return our stories of a split."""
    return [task for task in _all() if task.split == split]


def generate(n: int, seed: int) -> list[Task]:
    """Return n of our stories, drawn with the seed. Raises ConfigError if there are fewer than n."""
    return draw_tasks(_all(), n, seed, "TurtleGym's own collection")


def load_published(root: Path) -> list[Task]:
    """Return the 471 released stories with the split of their released rows. Raises TaskError."""
    path = root / RELEASED_STORIES
    stories = read_json(path, dict)
    splits = released_splits(root, "turtle_multiturn", "title")
    payloads: dict[str, dict[str, Any]] = {}
    for key, row in stories.items():
        payloads[key] = {
            "title": text_field(row, "new_title", path, key),
            "surface": text_field(row, "new_surface", path, key),
            "bottom": text_field(row, "new_bottom", path, key),
            "criteria": [
                _released_criterion(c, path, f"{key}, criterion {i}") for i, c in enumerate(_criteria(row, path, key))
            ],
            "yes": None,
            "no": None,
        }
    check_same(splits, [payload["title"] for payload in payloads.values()], path)
    return [
        Task("turtle", key, splits[payload["title"]], payload, "published:userrl") for key, payload in payloads.items()
    ]


def _criteria(row: Any, path: Path, key: str) -> list[Any]:
    value = row.get("evaluation")
    if not isinstance(value, list) or not value:
        raise TaskError("task.invalid_field", f"{path}, entry {key}: field 'evaluation' must be a list of criteria.")
    return value


def _released_criterion(row: Any, path: Path, where: str) -> dict[str, Any]:
    statement = text_field(row, "statement", path, where)
    weight = row.get("score")
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight <= 1:
        raise TaskError(
            "task.invalid_field", f"{path}, entry {where}: field 'score' must be a number in (0, 1], not {weight!r}."
        )
    # No pattern: the rule user derives it from the statement when the task is played, which keeps loading fast.
    return {"statement": statement, "weight": str(weight), "pattern": None, "ask": f"Is this so: {statement}"}


@lru_cache(maxsize=1)
def _all() -> list[Task]:
    text = Path(__file__).with_name("stories.json").read_text(encoding="utf-8")
    return [_task(story) for story in json.loads(text)]


def _task(story: dict[str, Any]) -> Task:
    criteria = [
        {"statement": statement, "weight": str(percent), "pattern": read_pattern(pattern), "ask": ask}
        for percent, statement, pattern, ask in story["criteria"]
    ]
    payload = {
        **{name: story[name] for name in ("title", "surface", "bottom")},
        "criteria": criteria,
        "yes": [read_pattern(text) for text in story["yes"]],
        "no": [read_pattern(text) for text in story["no"]],
    }
    name = content_hash(["turtle", story["title"], story["bottom"]])
    return Task("turtle", name, split_of(name, validation=VALIDATION), payload)
