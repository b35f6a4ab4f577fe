"""Registering runs and trials, and the door to everything else a flow or a command needs of the warehouse.

A run's row is written once: registering the same id again returns what is there, so that every incarnation of a run may
register it. Run numbers are folders made atomically; a number lost to a crash or a race is simply never used.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson

from userrl_core.errors import ConfigError, LogError
from warehouse import schema
from warehouse.files.encode import fitting
from warehouse.files.layout import claim, run_dir, run_folders, sync_folder, write_atomically

_STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the table `runs` holds it. recipe_json and environment are JSON text; created is Unix seconds."""

    run_id: str
    name: str = ""
    recipe: str = ""
    recipe_json: str = "{}"
    recipe_hash: str = ""
    seed: int | None = None
    backend: str = ""
    profile: str = ""
    shaping: str = "equalized"
    score: str = "r2g"
    gamma: float = 0.8
    k: float = 2.0
    form: str = "released"
    ddof: int = 0
    horizon: int | None = None
    code_version: str = ""
    environment: str = "{}"
    parent: str | None = None
    created: float = field(default_factory=time.time)

    @classmethod
    def of(cls, run_id: str, values: Mapping[str, Any] | None = None) -> RunRecord:
        """From a mapping; `recipe_json` and `environment` may be given as objects. Unknown keys are refused."""
        known = {f.name for f in fields(cls)} - {"run_id"}
        given = {**(values or {})}
        given.pop("run_id", None)
        if unknown := sorted(given.keys() - known):
            raise ConfigError(f"runs has no column {unknown[0]!r}; it has {', '.join(sorted(known))}.")
        for key in ("recipe_json", "environment"):
            if key in given and not isinstance(given[key], str):
                given[key] = orjson.dumps(given[key], option=orjson.OPT_NON_STR_KEYS, default=str).decode()
        return cls(run_id=run_id, **{key: value for key, value in given.items() if value is not None})


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


def register_run(root: Path | str, record: RunRecord) -> dict[str, Any]:
    """Write the run's row unless it is there, and return the row in force, its `run_no` included. Idempotent.

    Raises ConfigError for a value that its column cannot hold, LogError when the folder cannot be written or read.
    """
    root = Path(root)
    given = {key: value for key, value in asdict(record).items() if value is not None}
    fitted, _ = fitting({column.name: column.type for column in schema.tables()["runs"].columns.values()}, given)
    if wrong := [key for key in given if fitted[key] is None]:
        raise ConfigError(
            f"Run {record.run_id!r} cannot be registered: {wrong[0]} is {given[wrong[0]]!r}, but the column holds "
            f"{schema.tables()['runs'].columns[wrong[0]].type}; give a value within its range."
        )
    folder = run_dir(root, record.run_id)
    try:
        _stamp(root)
        if (row := read_run(folder)) is not None:
            return row
        folder.mkdir(parents=True, exist_ok=True)
        row = {**asdict(record), "run_no": claim(root / "numbers")}
        draft = folder / f".run.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        with draft.open("wb") as file:
            file.write(orjson.dumps(row))
            file.flush()
            os.fsync(file.fileno())
        try:
            # link fails where the row exists: of two processes registering at once, one wins and both see its row.
            os.link(draft, folder / "run.json")
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        sync_folder(folder)
    except OSError as error:
        if isinstance(error, LogError):
            raise
        raise LogError(
            f"The run cannot be registered in {root}: {error.strerror or error}. Free space or fix it."
        ) from error
    won = read_run(folder)
    if won is None:
        raise LogError(f"{folder / 'run.json'} vanished while the run was being registered; run again.")
    return won


def runs(root: Path | str) -> list[dict[str, Any]]:
    """Rows of all registered runs, oldest first; a row that cannot be read is left out (`check` tells it)."""
    rows = []
    for folder in run_folders(Path(root)):
        with suppress(LogError):
            if (row := read_run(folder)) is not None:
                rows.append(row)
    return sorted(rows, key=lambda row: (row["created"], row["run_no"]))


def find_run(root: Path | str, name: str) -> dict[str, Any]:
    """The run with this id, this name (the newest one), an unambiguous beginning of the id, or ``latest``.

    Raises ConfigError when there is none or the beginning fits several.
    """
    known = runs(root)
    if not known:
        raise ConfigError(f"There is no run in {root} yet; start one with `make run`.")
    if name == "latest":
        return known[-1]
    for key in ("run_id", "name"):
        if exact := [row for row in known if row[key] == name]:
            return exact[-1]
    fits = [row for row in known if row["run_id"].startswith(name)]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise ConfigError(f"{name!r} fits {len(fits)} runs; give more of the id, for example {fits[0]['run_id']}.")
    raise ConfigError(f"There is no run {name!r} in {root}; `userrl runs list` shows what there is.")


def record_trial(root: Path | str, record: TrialRecord) -> None:
    """Append a trial's state, durable on return. Several processes may record at once."""
    if not _STUDY.fullmatch(record.study):
        raise ConfigError(f"Study name {record.study!r} is not usable: letters, digits, '.', '_' and '-' only.")
    row = asdict(record) | {
        "params": orjson.dumps(dict(record.params)).decode(),
        "fields": orjson.dumps(dict(record.fields)).decode(),
        "logged_at": time.time(),
    }
    try:
        with _locked(Path(root) / "trials" / f"{record.study}.jsonl") as fd:
            _append_line(fd, orjson.dumps(row))
    except OSError as error:
        raise LogError(f"The trial cannot be recorded in {root}: {error.strerror or error}.") from error


def read_run(folder: Path) -> dict[str, Any] | None:
    """The row in a run's folder; None when there is none yet. Raises LogError for a file that holds no such row."""
    path = folder / "run.json"
    try:
        row = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except orjson.JSONDecodeError:
        row = None
    texts, numbers = ("run_id", "name"), ("run_no", "gamma", "created")
    if not (
        isinstance(row, dict)
        and all(isinstance(row.get(key), str) for key in texts)
        and all(isinstance(row.get(key), (int, float)) for key in numbers)
    ):
        raise LogError(f"{path} cannot be read; put it back from a backup, or start a run under another id.")
    return row


def format_version(root: Path) -> int:
    """The newest schema that wrote here, 0 when none did. Raises LogError when the file FORMAT cannot be read."""
    path = root / "FORMAT"
    try:
        return int(orjson.loads(path.read_bytes())["schema"])
    except FileNotFoundError:
        return 0
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise LogError(f"{path} cannot be read; run `userrl warehouse check --repair`.") from error


def write_format(root: Path) -> None:
    """Note this code's schema version."""
    write_atomically(root / "FORMAT", orjson.dumps({"schema": schema.version()}))


def _stamp(root: Path) -> None:
    """Note the schema version in FORMAT; refuse a warehouse that newer code has written."""
    found = format_version(root)
    if found > schema.version():
        raise ConfigError(f"{root} was written by schema {found}, this code knows {schema.version()}; update userrl.")
    if found < schema.version():
        write_format(root)


def _append_line(fd: int, line: bytes) -> None:
    """Append one whole line, durable on return; what an earlier short write left stays a line of its own, no row."""
    size = os.fstat(fd).st_size
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


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)
