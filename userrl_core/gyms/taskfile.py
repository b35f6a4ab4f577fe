"""Task files: one JSON object per line, written atomically. Every read error names file, line and field."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from userrl_core.chats.stream import rows
from userrl_core.chats.values import BrokenFile
from userrl_core.errors import TaskError
from userrl_core.json_files import portable
from userrl_core.records import Task
from userrl_core.replaced_file import replacing

DEFAULTS = {"source": "ours", "tier": ""}
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
        return [_task(row, where) for where, row in rows(path)]
    except OSError as error:
        raise TaskError(
            "task.file_unreadable", f"{path} cannot be read ({error.strerror or type(error).__name__})."
        ) from None
    except BrokenFile as error:
        raise TaskError("task.file_unreadable", error.fact) from None


def _task(row: dict[str, Any], where: str) -> Task:
    row = {key: value for key, value in row.items() if value is not None or key not in DEFAULTS}
    for name in ("gym", "id", "split", "source", "tier"):
        value = row.get(name, DEFAULTS.get(name))
        if not isinstance(value, str) or not (value or name == "tier"):
            raise TaskError(
                "task.invalid_field", f"{where}: field '{name}' is {'not a text' if name in row else 'missing'}."
            )
    if row["split"] not in _SPLITS:
        raise TaskError(
            "task.invalid_field",
            f"{where}: field 'split' is '{row['split']}'. Use one of {', '.join(_SPLITS)}.",
        )
    payload = row.get("payload")
    if not isinstance(payload, dict):
        raise TaskError("task.invalid_field", f"{where}: field 'payload' is missing or not an object.")
    if portable(payload) != payload:
        raise TaskError("task.invalid_field", f"{where}: a number of 'payload' is not finite, or is beyond 64 bits.")
    unknown = [key for key in row if key not in Task.__slots__]
    if unknown:
        raise TaskError(
            "task.invalid_field", f"{where}: there is no field '{unknown[0]}'. What a gym reads is in 'payload'."
        )
    return Task(**(DEFAULTS | row))
