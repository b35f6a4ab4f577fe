"""Tasks of an environment: the rows of its data sets, which the environment gets back word for word."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from userrl_core.errors import ConfigError, UserError
from userrl_core.gyms.other_python import LOAD, result
from userrl_core.gyms.pool import draw_tasks
from userrl_core.records import Task
from userrl_core.seeding import Split, content_hash, split_of, validation_of
from userrl_gym_verifiers.process import running

AT_ONCE = 500
"""Rows of one answer."""


def tasks(split: str, *, env: str = "", args: Mapping[str, Any] | None = None, count: int = 2000) -> Sequence[Task]:
    """Return the rows of a split. Equal rows are one task.

    env: the environment, as `load_environment` takes it. args: its arguments. count: the most rows of each data set. The
    evaluation set is the test split, and 5 % of the other rows are for validation. An environment with one data set is split
    by a hash of the rows. Without `env` there are none. Raises ConfigError if the environment does not load.
    """
    if not env:
        return []
    return [task for task in _all(env, json.dumps(args or {}, sort_keys=True), count) if task.split == split]


def generate(n: int, seed: int, *, env: str = "", args: Mapping[str, Any] | None = None) -> list[Task]:
    """Return n of the tasks. Raises ConfigError without an environment, and if it has fewer."""
    if not env:
        raise ConfigError(
            "task.bad_option", "The tasks of gym 'verifiers' are those of an environment. Set gyms.verifiers.tasks.env."
        )
    everything = [task for split in ("train", "validation", "test") for task in tasks(split, env=env, args=args)]
    return draw_tasks(everything, n, seed, f"Environment '{env}'")


@lru_cache(maxsize=8)
def _all(env: str, args: str, count: int) -> tuple[Task, ...]:
    try:
        train, evaluation = (_rows(env, args, split, count) for split in ("train", "eval"))
    except UserError as error:
        raise ConfigError("task.bad_option", str(error)) from None
    by_id: dict[str, Task] = {}
    for rows, is_test in ((train, False), (evaluation, True)):
        for row in rows:
            key = content_hash([env, args, row])
            split: Split = "test" if is_test else validation_of(key)
            if not (train and evaluation):
                split = split_of(key)
            payload = {"env": env, "args": json.loads(args), "row": row}
            by_id.setdefault(key, Task("verifiers", key, split, payload, source=f"verifiers:{env}", tier=env))
    return tuple(by_id.values())


def _rows(env: str, args: str, split: str, count: int) -> list[dict[str, Any]]:
    process = running(env, json.loads(args))
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        asked = min(AT_ONCE, count - len(rows))
        got = result(process, process.ask(0, rows=[split, len(rows), asked]), LOAD)["rows"]
        rows += got
        if len(got) < asked:
            break
    return rows
