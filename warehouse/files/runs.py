"""Registration of runs and trials, and lookup of a run by any of its names.

A run's row is written once. Registering the same id again returns the existing row, so every start of a run may
register it. Run numbers are folders made atomically. A number lost to a crash or a race is never used.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from userrl_core.errors import ConfigError, LogError
from userrl_core.file_lock import locked
from userrl_core.replaced_file import sync
from userrl_core.run_names import RunName, choose_run
from warehouse import schema
from warehouse.files.checksum import intact, stamped
from warehouse.files.encode import fitting
from warehouse.files.layout import REPAIR, claim, run_dir, run_folders, write_atomically

FAILED = "failed-before-rl"
"""The file that marks a run that failed before RL. `latest` does not mean it."""
RETIRED = "retired"
IMPORTED = "imported"
"""The kind of a run that holds conversations of another tool."""
RESCORED = "-reverify-"
"""The part between a run's id and a hash in the id of a run of `userrl reverify`, which has the first run's recipe and seed."""
_STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("name", "recipe", "recipe_hash", "backend", "profile", "code_version"), ""),
    **dict.fromkeys(("recipe_json", "environment"), "{}"),
    "shaping": "equalized",
    "score": "r2g",
    "gamma": 0.8,
    "k": 2.0,
    "form": "released",
    "ddof": 0,
}
"""Columns of `runs` that have a value by default."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A sweep trial: state is running, complete, pruned or failed; the last record of (study, number) counts."""

    study: str
    number: int
    run_id: str | None = None
    state: str = "running"
    value: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def register_run(root: Path, run_id: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Write the run's row unless it exists, and return the valid row with its `run_no`. Idempotent.

    fields: columns of `runs` by name; `recipe_json` and `environment` may be given as objects. Raises ConfigError for
    an unknown column or a value that its column cannot hold, LogError when the folder cannot be written or read.
    """
    types = {name: kind for name, kind in schema.types("runs").items() if name not in ("run_id", "run_no")}
    values = {name: value for name, value in (fields or {}).items() if value is not None and name != "run_id"}
    if unknown := sorted(values.keys() - types):
        raise ConfigError(
            "argument.unknown_value", f"Table runs has no column {unknown[0]!r}. It has {', '.join(sorted(types))}."
        )
    for name in ("recipe_json", "environment"):
        if name in values and not isinstance(values[name], str):
            values[name] = orjson.dumps(values[name], option=orjson.OPT_NON_STR_KEYS, default=str).decode()
    fitted, _ = fitting(types, values)
    if misfits := [name for name in values if fitted[name] is None]:
        raise ConfigError(
            "argument.out_of_range",
            f"Run {run_id!r} cannot be registered: {misfits[0]} is {values[misfits[0]]!r}, but the column has "
            f"type {types[misfits[0]]}. Give a value within its range.",
        )
    folder = run_dir(root, run_id)
    try:
        _stamp_format(root)
        if (row := read_run(folder)) is not None:
            return row
        folder.mkdir(parents=True, exist_ok=True)
        row = {"run_id": run_id, **dict.fromkeys(types), **_DEFAULTS, "created": time.time(), **values}
        draft = folder / f".run.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        try:
            with draft.open("wb") as file:
                file.write(stamped(orjson.dumps(row | {"run_no": claim(root / "numbers")})[:-1]))
                file.flush()
                os.fsync(file.fileno())
            # link fails where the row exists: of two processes registering at once, one wins and both see its row.
            with suppress(FileExistsError):
                os.link(draft, folder / "run.json")
        finally:
            draft.unlink(missing_ok=True)
            with suppress(OSError):  # a full disk leaves no folder without a row
                folder.rmdir()
        sync(folder)
        if (row := read_run(folder)) is None:
            raise LogError(
                "log.cannot_write",
                f"{folder / 'run.json'} disappeared while the run was being registered. Start the run again.",
            )
    except LogError:
        raise
    except OSError as error:
        raise LogError(
            "log.cannot_write",
            f"The run cannot be registered in {root}: {error.strerror or error}. Free space, or correct the cause.",
        ) from error
    return row


def register_copy(root: Path, folder: Path, run_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Write the row of a run that came from a file into its folder, which is not yet among the runs, and return it.

    fields: columns of `runs` by name. Other settings of training are null for a run of kind ``imported``, else defaults.
    """
    _stamp_format(root)
    texts = dict.fromkeys(("name", "recipe", "recipe_hash", "backend", "profile", "code_version"), "")
    objects = dict.fromkeys(("recipe_json", "environment"), "{}")
    defaults = {**texts, **objects} if fields.get("kind") == IMPORTED else _DEFAULTS
    row = {
        **dict.fromkeys(schema.types("runs")),
        **defaults,
        "created": time.time(),
        **{name: value for name, value in fields.items() if value is not None},
        "run_id": run_id,
        "run_no": claim(root / "numbers"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "run.json", stamped(orjson.dumps(row)[:-1]))
    return row


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return the row in a run's folder, or None. Raises LogError for a file without a valid row."""
    path = folder / "run.json"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    fault, row = "", None
    if intact(content) is False:
        fault = " (it fails its checksum)"
    else:
        with suppress(orjson.JSONDecodeError):
            row = orjson.loads(content)
    texts, numbers = ["run_id", "name"], ["run_no", "gamma", "created"]
    if isinstance(row, dict) and row.get("kind") == IMPORTED:
        numbers.remove("gamma")
    if not (
        isinstance(row, dict)
        and all(isinstance(row.get(key), str) for key in texts)
        and all(isinstance(row.get(key), (int, float)) for key in numbers)
        and row["run_id"] == folder.name.removeprefix("run=")
    ):
        raise LogError(
            "file.damaged", f"{path} cannot be read{fault}. Restore it from a backup, or start a run with another id."
        )
    row.pop("crc", None)
    return row


def stamp_run(folder: Path) -> bool:
    """Add a checksum to a run's row of an earlier version. Return True if it lacked one. Earlier versions can still read it."""
    path = folder / "run.json"
    if intact(path.read_bytes()) is not None:
        return False
    row = read_run(folder)
    if row is not None:
        write_atomically(path, stamped(orjson.dumps(row)[:-1]))
    return row is not None


def left_out(error: LogError) -> str:
    """Return the warning of a query that leaves out a run's row."""
    return f"{str(error).rstrip('.')}. The row of this run is left out."


def find_run(root: Path, name: str) -> dict[str, Any]:
    """Return the run with this id, name, beginning of an id, or ``latest`` (see `userrl_core.run_names`).

    A retired run is found only by its full id. A run with an unreadable row is left out with a warning. Raises
    ConfigError when no run or several match, LogError when the row of the run with this id cannot be read.
    """
    rows = {}
    for folder in run_folders(root):
        try:
            row = read_run(folder)
        except LogError as error:
            if folder.name == f"run={name}":
                raise
            warnings.warn(left_out(error), stacklevel=2)
        else:
            if row is not None:
                rows[row["run_id"]] = row
    if name in rows:
        return rows[name]
    current = [row for row in rows.values() if not (run_dir(root, row["run_id"]) / RETIRED).exists()]
    return rows[choose_run(name, [_names(root, row) for row in current], root)]


def _names(root: Path, row: Mapping[str, Any]) -> RunName:
    failed = (run_dir(root, row["run_id"]) / FAILED).exists()
    return RunName(row["run_id"], row["name"], row["created"], row.get("kind") == IMPORTED, failed)


def mark_failed(root: Path, run_id: str, *, failed: bool) -> None:
    """Mark a run that failed before RL, or remove the mark. A run without rows has none."""
    folder = run_dir(root, run_id)
    if failed and folder.is_dir():
        (folder / FAILED).touch()
    elif not failed:
        (folder / FAILED).unlink(missing_ok=True)


def retire_run(root: Path, run_id: str) -> None:
    """Mark a run whose checkpoints were deleted: `latest` and its name no longer mean it. Its rows stay."""
    folder = run_dir(root, run_id)
    if folder.is_dir():
        (folder / RETIRED).touch()


def record_trial(root: Path, record: TrialRecord) -> None:
    """Append a trial's state, durable on return. Several processes may record at once."""
    if not _STUDY.fullmatch(record.study):
        raise ConfigError(
            "argument.malformed", f"Study name {record.study!r} cannot be used. Use letters, digits, '.', '_' and '-'."
        )
    row = asdict(record) | {
        "params": orjson.dumps(dict(record.params)).decode(),
        "fields": orjson.dumps(dict(record.fields)).decode(),
        "logged_at": time.time(),
    }
    try:
        with locked(root / "trials" / f"{record.study}.jsonl") as fd:
            _append_line(fd, stamped(orjson.dumps(row)[:-1]))
    except OSError as error:
        raise LogError(
            "log.cannot_write",
            f"The trial cannot be recorded in {root}: {error.strerror or error}. Free space, or correct the cause.",
        ) from error


def format_version(root: Path) -> int:
    """Return the newest schema that wrote here, 0 without one. Raises LogError when the file FORMAT cannot be read."""
    path = root / "FORMAT"
    try:
        content = path.read_bytes()
        if intact(content) is False:
            raise ValueError("it fails its checksum")
        return int(orjson.loads(content)["schema"])
    except FileNotFoundError:
        return 0
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise LogError("warehouse.damaged", f"{path} cannot be read. {REPAIR}.") from error


def write_format(root: Path) -> None:
    """Record this code's schema version."""
    write_atomically(root / "FORMAT", stamped(orjson.dumps({"schema": schema.version()})[:-1]))


def _stamp_format(root: Path) -> None:
    """Record the schema version in FORMAT; refuse a warehouse that newer code has written."""
    written = format_version(root)
    if written > schema.version():
        raise ConfigError(
            "warehouse.newer_schema",
            f"{root} was written by schema {written}, and this code knows {schema.version()}. Update userrl.",
        )
    if written < schema.version():
        write_format(root)


def _append_line(fd: int, line: bytes) -> None:
    """Append one complete line, durable on return. The rest of an earlier short write stays a separate line, not a row."""
    size = os.lseek(fd, 0, os.SEEK_END)
    torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
    rest = b"\n" * torn + line + b"\n"
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, size)
        raise
