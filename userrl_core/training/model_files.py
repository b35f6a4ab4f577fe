"""Checks of a model's folder before transformers reads it, with one sentence for each problem.

A folder from elsewhere may be incomplete or unsafe: an index may name pickled weights or files outside the folder. A model
that a run or a fetch of ours wrote has hashes stored with it. They are checked here, so by everything that loads a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from userrl_core.errors import CheckpointError
from userrl_core.user_path import no_folder

INDEX = "model.safetensors.index.json"
STATE = "state.json"
"""File of a checkpoint of ours with the SHA-256 of every other file (`files`)."""
TRAINER = "trainer"
"""Folder of a checkpoint that only continued training reads."""
RECORD = "model.json"
"""File of a fetched model with the SHA-256 of its weights. It is written last, so that a folder without it does not count."""
CARD = "userrl.json"
"""File of a checkpoint of verl, above the model's folder, with the hash of the weights (`hash_of`)."""


def local_folder(path: str | Path) -> Path | None:
    """Return the folder of a model's files. A hub name gives its cache folder, None where nothing was fetched."""
    if Path(path).is_dir():
        return Path(path)
    if str(path).count("/") != 1:
        return None
    from huggingface_hub import try_to_load_from_cache  # imported here: it takes a third of a second

    config = try_to_load_from_cache(str(path), "config.json")
    return Path(config).parent if isinstance(config, str) else None


def check_files(folder: Path) -> None:
    """Raise CheckpointError for a folder whose config, index or weights are unreadable or do not match their stored
    hashes, or that names weights in another format.
    """
    if not (folder / "config.json").is_file():
        raise CheckpointError(
            "checkpoint.missing",
            f"No model can be loaded from {folder}: {no_folder(folder) or 'it has no config.json'}. Give the folder of a model.",
        )
    config = _object(folder / "config.json", without_nan=True)
    if config.get("transformers_weights") is not None:
        raise CheckpointError(
            "checkpoint.unsafe",
            f"{folder / 'config.json'} names its own file of weights ({config['transformers_weights']!r}). "
            "Remove the field transformers_weights.",
        )
    _check_index(folder)
    check_hashes(folder)
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                "checkpoint.damaged", f"The weights in {file} are damaged ({error}). Copy them again."
            ) from error


def check_stored(path: str | Path) -> None:
    """Raise CheckpointError for a model of this machine that does not match its stored hashes (`check_hashes`).

    For a server of its own, which reads the files itself.
    """
    folder = local_folder(path)
    if folder is not None:
        check_hashes(folder)


def check_hashes(folder: Path) -> None:
    """Raise CheckpointError for a model that does not match the hashes stored with it. A folder without any passes."""
    if (folder / STATE).exists():
        hashes = _object(folder / STATE).get("files")
        if not isinstance(hashes, dict):
            raise CheckpointError("checkpoint.damaged", f"{folder / STATE} names no files. Use another checkpoint.")
        for name, sha256 in hashes.items():
            if not name.startswith(f"{TRAINER}/"):
                check_hash(folder, name, str(sha256))
    elif (sha256 := _stored(folder / RECORD)) is not None:
        check_hash(folder, "model.safetensors", sha256)
    for card in (above / CARD for above in folder.resolve().parents[:2]):
        sha256 = _stored(card)
        if sha256 is not None and hash_of(sorted(folder.glob("*.safetensors"))) != sha256:
            raise CheckpointError(
                "checkpoint.damaged",
                f"The checkpoint {folder} is damaged: its weights do not match their hash in {card}. Use an older one.",
            )


def check_hash(folder: Path, name: str, sha256: str) -> None:
    """Raise CheckpointError for a file of a checkpoint that is missing, outside the folder, or has another hash."""
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise CheckpointError(
            "checkpoint.unsafe",
            f"The checkpoint {folder} names a file outside its own folder ({name}). Do not use it.",
        )
    if not path.is_file():
        raise CheckpointError(
            "checkpoint.damaged", f"The checkpoint {folder} has no file {name}. Use an older one, or copy it again."
        )
    if hash_of([path]) != sha256:
        raise CheckpointError(
            "checkpoint.damaged",
            f"The checkpoint {folder} is damaged: {name} does not match its hash. Use an older one, or copy it again.",
        )


def hash_of(files: Sequence[Path]) -> str:
    """Return the SHA-256 of one file, as other tools show it. For several files, hash their hashes in this order."""
    parts = []
    for path in files:
        with path.open("rb") as file:
            parts.append(hashlib.file_digest(file, "sha256"))
    return parts[0].hexdigest() if len(parts) == 1 else hashlib.sha256(b"".join(p.digest() for p in parts)).hexdigest()


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


def _stored(path: Path) -> str | None:
    """Return the hash of the weights in a record of ours; None where the file is missing or is none of ours."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    sha256 = record.get("sha256") if isinstance(record, dict) else None
    return sha256 if isinstance(sha256, str) and len(sha256) == 64 else None


def _object(path: Path, *, without_nan: bool = False) -> dict[str, Any]:
    """Return a file's JSON object. without_nan: NaN in it is an error; infinity never is, since some configs have it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_not_nan if without_nan else None)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no JSON: {str(error)[:100]}"
        raise CheckpointError(
            "checkpoint.damaged", f"{path} cannot be read ({reason}). Use another checkpoint."
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError("checkpoint.damaged", f"{path} contains no JSON object. Use another checkpoint.")
    return value


def _not_nan(constant: str) -> float:
    if constant == "NaN":
        raise ValueError("one of its values is NaN")
    return float(constant)
