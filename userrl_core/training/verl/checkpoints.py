"""Access to verl's checkpoint folders: find, hash, describe and prune them.

``global_step_N/actor/huggingface`` is the model that everyone can load, next to the shards that verl resumes from.
``global_step_N`` itself holds our ``userrl.json`` (id, hash, score) and the curriculum's state. Under LoRA verl
writes base and adapters under peft's names, which no other program loads. They are folded together before the
checkpoint is described.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from userrl_core.errors import CheckpointError
from userrl_core.json_files import read_json, write_json
from userrl_core.replaced_file import remove_folder
from userrl_core.training.jobs import Best
from userrl_core.training.model_files import CARD, hash_of
from userrl_core.training.verl.machine.folding import fold_adapters

TRACKER = "latest_checkpointed_iteration.txt"
CURRICULUM = "curriculum.json"
_STEP = re.compile(r"global_step_(\d+)\Z")
_SHARD = re.compile(r"model_world_size_(\d+)_rank_0\.pt\Z")


@dataclass(frozen=True, slots=True)
class CheckpointCard:
    """The description of a checkpoint. sha256: hash of the weights. parent: id of the checkpoint it continues."""

    id: str
    stage: str
    step: int
    sha256: str
    parent: str | None = None
    score: float | None = None


def hf_folder(folder: Path) -> Path:
    """Return the Hugging Face folder of a checkpoint: below ``actor`` for RL, directly inside for SFT."""
    below = folder / "actor" / "huggingface"
    return below if below.is_dir() else folder / "huggingface"


def step_of(folder: Path) -> int | None:
    """Return N of ``global_step_N``; None for any other folder."""
    match = _STEP.search(folder.name)
    return int(match[1]) if match else None


def owner(model: Path) -> Path | None:
    """Return the verl checkpoint that contains a Hugging Face folder; None for a model from elsewhere."""
    for folder in (model, model.parent, model.parent.parent):
        if step_of(folder) is not None:
            return folder
    return None


def newest(root: Path) -> Path | None:
    """Return the newest complete checkpoint: the one in verl's tracker file, which verl writes last."""
    try:
        step = int((root / TRACKER).read_text())
    except (FileNotFoundError, ValueError):
        return None
    folder = root / f"global_step_{step}"
    return folder if weights(folder) else None


def settled(root: Path) -> Path | None:
    """Return the newest checkpoint with a card. Its step was logged and validated too, so a restart may continue from it."""
    folders = [folder for folder in root.glob("global_step_*") if read_card(folder) is not None and weights(folder)]
    return max(folders, key=lambda folder: step_of(folder) or 0, default=None)


def weights(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint, sorted; empty without any."""
    return sorted(hf_folder(folder).glob("*.safetensors"))


def world_size(folder: Path) -> int | None:
    """Return the number of GPUs that wrote the shards; None without shards."""
    actor = folder / "actor"
    for path in sorted(actor.iterdir()) if actor.is_dir() else []:
        match = _SHARD.search(path.name)
        if match:
            return int(match[1])
    return None


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 over the weight files in their order. Raises CheckpointError without weight files."""
    files = weights(folder)
    if not files:
        raise CheckpointError(
            "checkpoint.damaged",
            f"{folder} contains no Hugging Face weights, so the checkpoint is incomplete. Use an older one.",
        )
    return hash_of(files)


def describe(folder: Path, stage: str, parent: str | None, score: float | None = None) -> CheckpointCard:
    """Fold in adapters, hash a complete checkpoint and write its card. Return the existing card if there is one."""
    card_on_disk = read_card(folder)
    if card_on_disk is not None:
        return card_on_disk
    step = step_of(folder)
    if step is None:
        raise CheckpointError(
            "checkpoint.missing", f"{folder} is not a checkpoint of verl (global_step_N). Give the folder of one."
        )
    fold_adapters(hf_folder(folder))
    sha256 = weights_hash(folder)
    card = CheckpointCard(f"{stage}-{step}-{sha256[:12]}", stage, step, sha256, parent, score)
    write_json(folder / CARD, asdict(card))
    return card


def read_card(folder: Path) -> CheckpointCard | None:
    """Return the card that `describe` wrote; None without one."""
    values = read_json(folder / CARD)
    return CheckpointCard(**values) if values is not None else None


def best_of(root: Path, earlier: Best | None) -> Best | None:
    """Return the checkpoint with the highest validation score among those on disk and the best of earlier stages."""
    best = earlier
    for folder in sorted(root.glob("global_step_*"), key=lambda f: step_of(f) or 0):
        card = read_card(folder)
        if card is not None and card.score is not None and (best is None or card.score > best.score):
            best = Best(path=hf_folder(folder), id=card.id, step=card.step, score=card.score)
    return best


def prune(root: Path, keep: int, best: Best | None) -> None:
    """Remove all checkpoints except the newest ``keep`` and the best one."""
    folders = sorted((f for f in root.glob("global_step_*") if read_card(f)), key=lambda f: step_of(f) or 0)
    for folder in folders[:-keep]:
        if best is None or hf_folder(folder) != best.path:
            remove_folder(folder)


def save_curriculum(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the curriculum's state for the next stage."""
    write_json(folder / CURRICULUM, dict(state))


def read_curriculum(folder: Path) -> dict[str, Any] | None:
    """Return the previous stage's curriculum state, None without one."""
    return read_json(folder / CURRICULUM)


def forget_dataloader(folder: Path) -> None:
    """Remove verl's dataloader state. A stage's file already holds the remaining rows in order, and the state crashes
    on another file.
    """
    (folder / "data.pt").unlink(missing_ok=True)
