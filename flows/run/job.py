"""One stage as data: what a flow hands to a training process. The process answers with progress lines and a result file."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from flows.run.run import read_json, write_json
from userrl_core.seeding import content_hash


class Actor(BaseModel):
    """Someone who is evaluated: a demonstrator, a checkpoint or a served model."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    label: str
    """As reports call it: demonstrator, SFT, RL."""

    kind: Literal["demonstrator", "checkpoint", "served"]
    """The recipe's demonstrator, a model on disk, or a model behind a server."""

    path: str = ""
    """Checkpoint: its folder. Served: the model's name."""

    id: str | None = None
    """Checkpoint: its id in the warehouse."""

    sha256: str = ""
    """Checkpoint: hash of its weights."""

    step: int = 0
    """Checkpoint: its training step."""

    options: dict[str, Any] = {}
    """Served: the server's other settings, such as base_url."""

    @property
    def identity(self) -> list[Any]:
        """What decides whether an earlier evaluation still counts."""
        return [self.label, self.kind, self.path if self.kind == "served" else self.sha256, self.step, self.options]


class Job(BaseModel):
    """A stage of a run. Its folder is its own; started again there, it goes on where it was."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    kind: Literal["distill", "sft", "rl", "evaluate"]
    """What is done."""

    stage: str
    """Name in records: distill, sft, rl-1 ... rl-n, evaluate."""

    run_id: str
    """The run in the warehouse."""

    folder: Path
    """Folder of this stage."""

    warehouse: Path
    """Where turns are logged."""

    recipe: dict[str, Any]
    """The resolved recipe."""

    seed: int = 0
    """Fixes every random draw."""

    backend: Literal["local", "verl"] = "local"
    """Which trainer."""

    inputs: dict[str, Any] = {}
    """What earlier stages left: results as they were returned, by stage."""

    actors: list[Actor] = []
    """Who is evaluated."""

    options: dict[str, Any] = {}
    """What does not change the result: checkpoints kept, tracking, the run's parameters for the record."""

    @property
    def key(self) -> str:
        """Identity of the work: the same key gives the same result, so a finished one is reused."""
        inputs = {stage: [result.get("sha256"), result.get("step")] for stage, result in self.inputs.items()}
        actors = [actor.identity for actor in self.actors]
        what = [self.run_id, self.kind, self.stage, self.recipe, self.seed, self.backend, inputs, actors]
        return content_hash(what)

    @property
    def progress_file(self) -> Path:
        """One JSON line per step."""
        return self.folder / "progress.jsonl"

    def write(self) -> Path:
        """Put the job where its process reads it."""
        path = self.folder / "job.json"
        write_json(path, self.model_dump(mode="json"))
        return path

    def result(self) -> dict[str, Any] | None:
        """The result of exactly this job, None when there is none that still holds.

        It holds when its files exist and their hashes are those that were noted; a checkpoint also has to be of the step
        that the result names.
        """
        found = read_json(self.folder / "result.json")
        if found is None or found.get("key") != self.key:
            return None
        value: dict[str, Any] = found["value"]
        return value if holds(value) else None

    def finish(self, value: Mapping[str, Any]) -> None:
        """Leave the result."""
        write_json(self.folder / "result.json", {"key": self.key, "value": dict(value), "at": time.time()})


def holds(value: Mapping[str, Any]) -> bool:
    """Whether what a result points to is still there and unchanged."""
    files: Mapping[str, str] = value.get("files", {})
    return all(Path(path).is_file() and file_hash(Path(path)) == sha256 for path, sha256 in files.items())


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class ProgressWriter:
    """Appends one line per step: step, total, seconds since the start, and whatever numbers are given."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._began = time.monotonic()

    def __call__(self, step: int, total: int, **numbers: Any) -> None:
        """One finished step."""
        line = {"step": step, "total": total, "seconds": round(time.monotonic() - self._began, 3), **numbers}
        self._file.write(json.dumps(line, default=float) + "\n")

    def close(self) -> None:
        """No more lines."""
        self._file.close()


class ProgressReader:
    """Reads lines as they come; a torn last line waits for its end."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        self._at = path.stat().st_size if from_end and path.exists() else 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read()
        except FileNotFoundError:
            return
        end = text.rfind(b"\n") + 1
        self._at += end
        for line in text[:end].splitlines():
            try:
                value = json.loads(line)
            except json.JSONDecodeError:
                continue  # what a killed process tore; the next process began a new line after it
            if isinstance(value, dict):
                yield value


def begin_line(path: Path) -> None:
    """End a torn last line, so that appending starts on a fresh one."""
    try:
        with path.open("rb+") as file:
            if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                file.write(b"\n")
    except FileNotFoundError:
        return
