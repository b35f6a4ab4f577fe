"""Checkpoint folders: written atomically, verified by hashes, without pickle.

A checkpoint is a Hugging Face model folder that contains a ``trainer`` folder (optimiser, generators, curriculum; see
`state`). It is written under a temporary name and synced to disk. ``state.json`` is written last, with the SHA-256 of
every other file, and then the folder is renamed. A folder without ``state.json``, or with other hashes, is never
loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError

from userrl_core.errors import CheckpointError
from userrl_core.replaced_file import remove_folder, sync
from userrl_core.training.model_files import STATE, check_hash, hash_of

_NAME = re.compile(r"step-(\d{6,})")


class CheckpointState(BaseModel):
    """The content of ``state.json``. files: SHA-256 by path within the folder. sha256: hash of the weights alone, to
    compare runs.
    """

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
    """Return the folder of a step's checkpoint."""
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
    """Write a checkpoint atomically, replacing an older one of that name.

    fill: writes all files except ``state.json`` into the given folder. Raises CheckpointError when the checkpoint
    cannot be written.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        fill(partial)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise CheckpointError(
            "file.not_writable",
            f"The checkpoint {folder} cannot be written ({error}). Free some space and start again.",
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
    sync(partial / STATE)
    for directory in [path for path in partial.rglob("*") if path.is_dir()]:
        sync(directory)
    sync(partial)
    remove_folder(folder)
    partial.rename(folder)
    sync(folder.parent)
    return state


def read_state(folder: Path) -> CheckpointState:
    """Return a checkpoint's ``state.json`` without verifying its files. Raises CheckpointError when it cannot be read."""
    if not folder.is_dir():
        raise CheckpointError(
            "checkpoint.missing", f"There is no checkpoint at {folder}. Give a folder that contains {STATE}."
        )
    try:
        return CheckpointState.model_validate(json.loads((folder / STATE).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise CheckpointError(
            "checkpoint.damaged", f"The checkpoint {folder} is incomplete: it has no {STATE}. Use an older one."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            "checkpoint.damaged", f"The checkpoint {folder} has an unreadable {STATE}. Use an older one."
        ) from error


def read_checkpoint(folder: Path) -> CheckpointState:
    """Return a checkpoint's ``state.json`` after verifying every file. Raises CheckpointError naming the problem."""
    state = read_state(folder)
    for name, sha256 in state.files.items():
        check_hash(folder, name, sha256)
    return state


def newest(root: Path, *, report: Callable[[Path, str], None] | None = None) -> tuple[Path, CheckpointState] | None:
    """Return the newest complete checkpoint, or None. report: called for each damaged checkpoint that is skipped."""
    for _, folder in sorted(_steps(root), reverse=True):
        try:
            return folder, read_checkpoint(folder)
        except CheckpointError as error:
            if report is not None:
                report(folder, str(error))
    return None


def prune(root: Path, keep: int, best: Path | None) -> list[Path]:
    """Remove all checkpoints except the newest ``keep`` and the best one. Return the removed folders."""
    removed = []
    for _, folder in sorted(_steps(root))[:-keep]:
        if best is None or folder.resolve() != best.resolve():
            remove_folder(folder)
            removed.append(folder)
    return removed


def read_json(path: Path) -> Any:
    """Return the JSON of a checkpoint's file. Raises CheckpointError when it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError("checkpoint.damaged", f"{path} cannot be read. Use another checkpoint.") from error


def _steps(root: Path) -> Iterator[tuple[int, Path]]:
    for path in root.iterdir() if root.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match and path.is_dir():
            yield int(match.group(1)), path


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sync_and_hash(path: Path) -> str:
    sync(path)
    return hash_of([path])
