"""Readers of the released task files (JSON and parquet). Every error names file, index and field.

A loader returns all tasks of a gym or raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sized
from pathlib import Path
from typing import Any

from userrl_core.chats.stream import items, value_of
from userrl_core.chats.values import BrokenFile
from userrl_core.errors import MissingFileError, TaskError
from userrl_core.json_files import portable
from userrl_core.seeding import Split, content_hash, validation_of
from userrl_core.user_path import open_file


def read_json(path: Path, expected: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """Return the JSON value of a file, which must be of the expected type. Raises TaskError with the file."""
    try:
        with open_file(path) as file:
            value = value_of(file.read(), str(path))
    except FileNotFoundError:
        raise MissingFileError(
            "task.file_missing",
            f"The file {path} does not exist. Give the root folder of a copy of the released repository.",
        ) from None
    except OSError as error:
        raise TaskError("task.file_unreadable", f"{path} cannot be read ({error.strerror}).") from None
    except BrokenFile as error:
        raise TaskError("task.file_unreadable", f"{error.fact} Copy it again from the release.") from None
    if portable(value) != value:
        raise TaskError("task.file_unreadable", f"{path}: a number is not finite, or is beyond 64 bits.")
    if not isinstance(value, expected):
        raise TaskError(
            "task.file_unreadable",
            f"{path} must contain a JSON {'list' if expected is list else 'object'}, not {type(value).__name__}.",
        )
    check_filled(value, path)
    return value


def check_filled(rows: Sized, path: Path) -> None:
    """Raise TaskError for a file of a release that has a form but no content."""
    if not len(rows):
        raise TaskError("task.none_left", f"{path} is empty: it has 0 entries. Copy it again from the release.")


def check_same(rows: Collection[str], data: Collection[str], path: Path) -> None:
    """Raise TaskError unless the released rows and a data file name the same tasks. path: the data file."""
    check_names(rows, data, "the table of released rows", str(path))
    check_names(data, rows, path.name, "the table of released rows")


def check_names(named: Collection[str], held: Collection[str], namer: str, holder: str) -> None:
    """Raise TaskError, with the count, for tasks that one part of a release names and another does not hold."""
    if missing := sorted({*named} - {*held}):
        raise TaskError(
            "task.file_unreadable",
            f"{len(missing)} of {len({*named})} entries that {namer} names are missing from {holder}, such as "
            f"'{missing[0]}'. Copy the release again.",
        )


def read_parquet(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    """Return the rows of a parquet file with these columns only. Raises TaskError with the file."""
    import pyarrow as pa  # imported here for start-up time: only published tasks need it
    import pyarrow.parquet as pq

    try:
        with open_file(path) as file:
            rows: list[dict[str, Any]] = pq.read_table(file, columns=columns, use_threads=False).to_pylist()
    except FileNotFoundError:
        raise MissingFileError(
            "task.file_missing",
            f"The file {path} does not exist. Give the root folder of a copy of the released repository.",
        ) from None
    except (pa.ArrowException, OSError) as error:
        raise TaskError(
            "task.file_unreadable",
            f"{path} is not a readable parquet file with columns {', '.join(columns)} ({error}).",
        ) from None
    check_filled(rows, path)
    return rows


def text_field(row: Any, name: str, path: Path, index: object) -> str:
    """Return a field that must hold text. Raises TaskError with file, index and field."""
    value = row.get(name) if isinstance(row, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise TaskError(
            "task.invalid_field", f"{path}, entry {index}: field '{name}' must be text, not {type(value).__name__}."
        )
    return value


def released_splits(root: Path, folder: str, field: str) -> dict[str, Split]:
    """Return the split of each released task, by the ``reward_model.<field>`` of its row.

    Validation is 5 % of the released train rows, by content hash (UserRL section 4.1). The released validation set is part
    of the test rows.
    """
    splits: dict[str, Split] = {}
    for part, row, path, index in _rows(root / "data" / folder):
        name = text_field(row.get("reward_model"), field, path, index)
        split: Split = "test" if part == "test" else validation_of(content_hash([folder, name]))
        if splits.setdefault(name, split) != split:
            raise TaskError("task.duplicate", f"{path}, entry {index}: '{name}' occurs both in train and in test.")
    return splits


def _rows(folder: Path) -> Iterator[tuple[str, dict[str, Any], Path, int]]:
    for part in ("train", "test"):
        path = folder / f"{part}.parquet"
        if part == "train" and not path.exists() and (folder / "test.parquet").exists():
            continue  # SearchGym has no training rows
        for index, row in enumerate(read_parquet(path, ["reward_model"])):
            yield part, row, path, index


def read_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return place and value of each conversation of a file. Raises TaskError for a file without conversations."""
    try:
        rows = list(items(path))
    except OSError as error:
        raise TaskError("chats.invalid", f"{path} cannot be read: {error.strerror}.") from None
    except BrokenFile as error:
        raise TaskError("chats.invalid", error.fact) from None
    if not rows:
        raise TaskError("chats.invalid", f"{path} contains no conversation. Give a file with at least one.")
    return rows
