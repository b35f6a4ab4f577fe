"""Task files: one JSON object per line, written atomically. Every read error names file, line and field."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from userrl_core.errors import TaskError
from userrl_core.records import Task
from userrl_core.replaced_file import replacing

_SPLITS = ("train", "validation", "test")


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Write the tasks and return their number. The file is replaced atomically, so a reader never sees a partial file."""
    count = 0
    with replacing(path) as file:
        for task in tasks:
            file.write(orjson.dumps(task, option=orjson.OPT_APPEND_NEWLINE, default=dict))
            count += 1
    return count


def read_tasks(path: Path) -> list[Task]:
    """Return all tasks of a file. Raises TaskError for the first line that is not a task."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise TaskError(
            "task.file_unreadable", f"{path} cannot be read ({error.strerror or type(error).__name__})."
        ) from None
    return [_task(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]


def _task(line: bytes, path: Path, number: int) -> Task:
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise TaskError(
            "task.file_unreadable", f"{path}, line {number}: this line is not valid JSON ({error.msg})."
        ) from None
    if not isinstance(row, dict):
        raise TaskError(
            "task.invalid_field", f"{path}, line {number}: this line is a {type(row).__name__}, not an object."
        )
    for name in ("gym", "id", "split"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise TaskError("task.invalid_field", f"{path}, line {number}: field '{name}' is missing or not a text.")
    if row["split"] not in _SPLITS:
        raise TaskError(
            "task.invalid_field",
            f"{path}, line {number}: field 'split' is '{row['split']}'. Use one of {', '.join(_SPLITS)}.",
        )
    if not isinstance(row.get("payload"), dict):
        raise TaskError("task.invalid_field", f"{path}, line {number}: field 'payload' is missing or not an object.")
    source, tier = str(row.get("source", "ours")), str(row.get("tier", ""))
    return Task(row["gym"], row["id"], row["split"], row["payload"], source, tier)
