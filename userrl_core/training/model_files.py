"""Checks of a model's folder before transformers reads it, with one sentence for each problem.

A folder from elsewhere may be incomplete or unsafe: an index may name pickled weights or files outside the folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from safetensors import SafetensorError, safe_open

from userrl_core.errors import CheckpointError

INDEX = "model.safetensors.index.json"


def local_folder(path: str | Path) -> Path | None:
    """Return the folder of a model's files. A hub name gives its cache folder, None where nothing was fetched."""
    if Path(path).is_dir():
        return Path(path)
    config = try_to_load_from_cache(str(path), "config.json") if str(path).count("/") == 1 else None
    return Path(config).parent if isinstance(config, str) else None


def check_files(folder: Path) -> None:
    """Raise CheckpointError for a folder whose config, index or weights are unreadable, or that names weights in
    another format.
    """
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            "checkpoint.missing",
            f"No model can be loaded from {folder}: it has no config.json. Give the folder of a model.",
        )
    config = _object(folder / "config.json")
    if config.get("transformers_weights") is not None:
        raise CheckpointError(
            "checkpoint.unsafe",
            f"{folder / 'config.json'} names its own file of weights ({config['transformers_weights']!r}). "
            "Remove the field transformers_weights.",
        )
    _check_index(folder)
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                "checkpoint.damaged", f"The weights in {file} are damaged ({error}). Copy them again."
            ) from error


def check_attention(folder: Path) -> None:
    """Raise CheckpointError where config.json names a custom attention: verl's workers would load it from a hub."""
    named = _object(folder / "config.json").get("_attn_implementation")
    if named not in (None, "eager", "sdpa", "flash_attention_2"):
        raise CheckpointError(
            "checkpoint.unsafe",
            f"{folder / 'config.json'} names the attention {named!r}, which would be loaded from elsewhere. "
            "Remove the field _attn_implementation.",
        )


def template_of(folder: Path) -> str | None:
    """Return the chat template in a model's folder; None unless it has a single template text."""
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(
            "checkpoint.bad_tokenizer", f"The chat template {file} cannot be read ({error}). Use another checkpoint."
        ) from error
    config = folder / "tokenizer_config.json"
    template = _object(config).get("chat_template") if config.is_file() else None
    return template if isinstance(template, str) else None


def _check_index(folder: Path) -> None:
    file = folder / INDEX
    if not file.exists():
        return
    weights = _object(file).get("weight_map")
    if not isinstance(weights, dict) or not weights or not all(isinstance(name, str) for name in weights.values()):
        raise CheckpointError(
            "checkpoint.damaged", f"{file} names no files of weights (weight_map). Use another checkpoint."
        )
    for name in sorted(set(weights.values())):
        if not name.endswith(".safetensors") or Path(name).name != name:
            raise CheckpointError(
                "checkpoint.unsafe",
                f"{file} names {name!r}, and only safetensors files of the same folder are read. Convert the weights.",
            )
        if not (folder / name).is_file():
            raise CheckpointError(
                "checkpoint.damaged", f"{folder} has no {name}, which its index names. Copy it again."
            )


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no JSON: {str(error)[:100]}"
        raise CheckpointError(
            "checkpoint.damaged", f"{path} cannot be read ({reason}). Use another checkpoint."
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError("checkpoint.damaged", f"{path} contains no JSON object. Use another checkpoint.")
    return value
