"""Checkpoint folders: whole or not there, checked against their hashes, free of pickle.

A checkpoint is a Hugging Face model folder with a ``trainer`` folder inside (optimiser, generators, curriculum; see
`state`). It is written under another name, synced to disk, described by ``state.json``, which comes last and holds the
SHA-256 of every other file, and then renamed. A folder without it, or one that differs from it, is never loaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError

from userrl_core.errors import CheckpointError

STATE = "state.json"
_NAME = re.compile(r"step-(\d{6,})")


class CheckpointState(BaseModel):
    """``state.json``. files: SHA-256 by path within the folder. sha256: of the weights alone, by which runs compare."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = 1
    id: str
    stage: str
    step: int
    sha256: str
    files: dict[str, str]
    parent: str | None = None
    score: float | None = None


def step_folder(root: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return root / f"step-{step:06d}"


def write_checkpoint(
    folder: Path,
    fill: Callable[[Path], None],
    *,
    stage: str,
    step: int,
    parent: str | None = None,
    score: float | None = None,
) -> CheckpointState:
    """Write a checkpoint that is either complete under its name or not there at all.

    fill: writes everything but ``state.json`` into the folder it is given. An older checkpoint of that name is replaced.
    Raises CheckpointError when the disk does not take it.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        fill(partial)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            f"The checkpoint {folder} cannot be written ({error}); free some space and start again."
        ) from error
    files = {str(path.relative_to(partial)): _sync_and_hash(path) for path in _files(partial)}
    weights = hashlib.sha256()
    for name in sorted(files):
        if "/" not in name and name.endswith(".safetensors"):
            weights.update(f"{name}:{files[name]}\n".encode())
    sha256 = weights.hexdigest()
    state = CheckpointState(
        id=f"{stage}-{step:06d}-{sha256[:12]}",
        stage=stage,
        step=step,
        sha256=sha256,
        files=files,
        parent=parent,
        score=score,
    )
    (partial / STATE).write_text(state.model_dump_json(indent=1), encoding="utf-8")
    _sync(partial / STATE)
    for directory in [path for path in partial.rglob("*") if path.is_dir()]:
        _sync(directory)
    _sync(partial)
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)
    _sync(folder.parent)
    return state


def read_state(folder: Path) -> CheckpointState:
    """What a checkpoint says of itself, files unchecked. Raises CheckpointError when it says nothing readable."""
    if not folder.is_dir():
        raise CheckpointError(f"There is no checkpoint at {folder}; give a folder that holds {STATE}.")
    try:
        return CheckpointState.model_validate(json.loads((folder / STATE).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise CheckpointError(f"The checkpoint {folder} is incomplete: it has no {STATE}; use an older one.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError, ValidationError) as error:
        raise CheckpointError(f"The checkpoint {folder} has an unreadable {STATE}; use an older one.") from error


def read_checkpoint(folder: Path) -> CheckpointState:
    """The checkpoint's state after every file was checked. Raises CheckpointError saying what is wrong."""
    state = read_state(folder)
    for name, expected in state.files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(f"The checkpoint {folder} names a file outside itself ({name}); do not use it.")
        if not path.is_file():
            raise CheckpointError(f"The checkpoint {folder} has lost its file {name}; use an older one.")
        if _hash(path) != expected:
            raise CheckpointError(
                f"The checkpoint {folder} is damaged: {name} does not match its hash; use an older one."
            )
    return state


def newest(root: Path, *, report: Callable[[Path, str], None] | None = None) -> tuple[Path, CheckpointState] | None:
    """The checkpoint of the highest step that is whole, or None. report: told of each one that had to be passed over."""
    for _, folder in sorted(_steps(root), reverse=True):
        try:
            return folder, read_checkpoint(folder)
        except CheckpointError as error:
            if report is not None:
                report(folder, str(error))
    return None


def prune(root: Path, keep: int, best: Path | None) -> list[Path]:
    """Remove all but the newest ``keep`` checkpoints and the best one; returns what was removed."""
    for left in root.glob(".step-*.deleted"):  # by a process that was killed while it deleted
        shutil.rmtree(left, ignore_errors=True)
    removed = []
    for _, folder in sorted(_steps(root))[:-keep]:
        if best is None or folder.resolve() != best.resolve():
            # A name that nobody looks for comes first: a kill while gigabytes are deleted leaves no half checkpoint.
            doomed = folder.with_name(f".{folder.name}.deleted")
            folder.rename(doomed)
            shutil.rmtree(doomed)
            removed.append(folder)
    return removed


def read_json(path: Path) -> Any:
    """JSON of a checkpoint's file; raises CheckpointError when it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read; the checkpoint was made by something else.") from error


def _steps(root: Path) -> Iterator[tuple[int, Path]]:
    for path in root.iterdir() if root.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            yield int(match.group(1)), path


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_and_hash(path: Path) -> str:
    _sync(path)
    return _hash(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
