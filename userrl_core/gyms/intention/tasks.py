"""IntentionGym's tasks: our own vague requests over a bank of details, and the published ones.

Ours: `intentions.json` lists domains with details (description, question, options) and requests. Each request lists its open
details and their importance. Published: the rows of the parquet files, completed from the environment's JSON.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from userrl_core.errors import ConfigError, TaskError
from userrl_core.gyms.pool import distinct_tasks
from userrl_core.gyms.released import check_names, read_json, released_splits, text_field
from userrl_core.records import Task
from userrl_core.seeding import content_hash, split_of

FOLDER = "gyms/IntentionGym/intentiongym/data"
ROWS = "intention_multiturn"


def tasks(split: str) -> Sequence[Task]:
    """Return our own tasks of a split."""
    return _by_split().get(split, ())


def generate(n: int, seed: int) -> list[Task]:
    """Return n requests over our domains. Each leaves two to five of the domain's details open, with drawn importance."""
    if n < 1:
        raise ConfigError("argument.out_of_range", f"n is the number of tasks to generate. Give 1 or more, not {n}.")
    rng = random.Random(seed)

    def draw() -> Task:
        domain = rng.choice(_bank())
        request = rng.choice(list(domain["requests"]))
        names = rng.sample(sorted(domain["details"]), rng.randint(2, min(5, len(domain["details"]))))
        return _task(domain, request, [(name, rng.choice((1, 2, 2, 3))) for name in names])

    return distinct_tasks("intention", n, draw)


def load_published(root: Path) -> list[Task]:
    """Return the released tasks of both splits (380 train, 40 test; 5 % of train become validation).

    Raises TaskError.
    """
    splits = released_splits(root, ROWS, "id")
    published: dict[str, Task] = {}
    for name in ("all_intentions_train.json", "all_intentions_test.json"):
        path = root / FOLDER / name
        for index, row in enumerate(read_json(path, list)):
            key = text_field(row, "id", path, index)
            payload = {
                "category": text_field(row, "category", path, index),
                "task": text_field(row, "task", path, index),
                "details": _published_details(row, path, index),
            }
            # The environment's files hold 687 further tasks without a released row (table 2 counts 380 and 40).
            if key in splits:
                task = Task("intention", key, splits[key], payload, source="published:userrl")
                if published.setdefault(key, task) != task:
                    raise TaskError("task.duplicate", f"{path}, entry {index}: another entry has the id '{key}' too.")
    check_names(splits, published, "the table of released rows", str(root / FOLDER))
    return list(published.values())


def _published_details(row: Mapping[str, Any], path: Path, index: int) -> list[dict[str, Any]]:
    rows = row.get("missing_details")
    if not isinstance(rows, list) or not rows:
        raise TaskError(
            "task.invalid_field", f"{path}, entry {index}: field 'missing_details' is not a list of details."
        )
    details = []
    for i, item in enumerate(rows):
        name = f"missing_details[{i}]"
        if not isinstance(item, dict):
            raise TaskError("task.invalid_field", f"{path}, entry {index}: field '{name}' is not an object.")
        if str(item.get("importance")) not in ("1", "2", "3"):
            raise TaskError(
                "task.invalid_field",
                f"{path}, entry {index}: field '{name}.importance' is {item.get('importance')!r}, not 1, 2 or 3.",
            )
        options = item.get("options") or []
        if not isinstance(options, list):
            raise TaskError("task.invalid_field", f"{path}, entry {index}: field '{name}.options' is not a list.")
        details.append(
            {
                "description": text_field(item, "description", path, f"{index}, {name}"),
                "importance": int(item["importance"]),
                "inquiry": text_field(item, "inquiry", path, f"{index}, {name}"),
                "options": [str(option) for option in options],
            }
        )
    return details


@lru_cache(maxsize=1)
def _by_split() -> dict[str, tuple[Task, ...]]:
    our_tasks = [
        _task(domain, request, _parse(open_details))
        for domain in _bank()
        for request, open_details in domain["requests"].items()
    ]
    return {split: tuple(t for t in our_tasks if t.split == split) for split in ("train", "validation", "test")}


def _parse(open_details: str) -> list[tuple[str, int]]:
    pairs = (part.split() for part in open_details.split(","))
    return [(name, int(importance)) for name, importance in pairs]


def _task(domain: Mapping[str, Any], request: str, open_details: Sequence[tuple[str, int]]) -> Task:
    details = []
    for name, importance in open_details:
        description, inquiry, *options = domain["details"][name]
        details.append({"description": description, "importance": importance, "inquiry": inquiry, "options": options})
    payload = {"category": domain["category"], "task": request, "details": details}
    key = content_hash(payload)
    return Task("intention", key, split_of(key), payload)


@lru_cache(maxsize=1)
def _bank() -> list[dict[str, Any]]:
    bank: list[dict[str, Any]] = read_json(Path(str(files("userrl_core.gyms.intention") / "intentions.json")), list)
    return bank
