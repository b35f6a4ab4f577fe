"""The checkpoints of a run that are on disk, with their scores, and whether transformers can load them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from safetensors import safe_open

from userrl.machine.home import in_this_home, warehouse_dir
from userrl.run.run import Run
from userrl_core.errors import CheckpointError, first_line
from userrl_core.json_files import read_json
from userrl_core.training.model_files import check_files
from warehouse import open_warehouse

LOGGED = (
    "SELECT checkpoint, path, stage, step, sha256, score FROM checkpoints WHERE run_id = $run ORDER BY logged_at, seq"
)


class ListedCheckpoint(BaseModel):
    """A checkpoint on disk.

    score: mean validation score, None if it was not validated. chosen: whether validation chose it for the evaluation.
    problem: the reason why transformers cannot load it, "" if it can.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    stage: str
    step: int
    score: float | None
    chosen: bool
    megabytes: float
    problem: str
    path: Path


def listed_checkpoints(run: Run, *, load: bool = False) -> tuple[list[ListedCheckpoint], int]:
    """Return the checkpoints of a run on disk in order of training, and the number of those deleted during training.

    load: load each checkpoint with transformers. Otherwise its config, tokenizer and the headers of its weights are checked.
    """
    rows = _logged(run)
    scores = {row["sha256"]: row["score"] for row in rows if row["score"] is not None}
    by_path: dict[Path, dict[str, Any]] = {}
    for row in rows:
        # The last row: a stage that began anew wrote the same folder again.
        by_path[in_this_home(run.folder, Path(row["path"]))] = row
    on_disk = {path: row for path, row in by_path.items() if path.is_dir()}
    checkpoints = [
        ListedCheckpoint(
            id=row["checkpoint"],
            stage=row["stage"],
            step=row["step"],
            score=scores.get(row["sha256"]),
            chosen=path == run.checkpoint,
            megabytes=sum(file.stat().st_size for file in path.glob("*.safetensors")) / 1e6,
            problem=loading_problem(path) or (_failure(path) if load else ""),
            path=path,
        )
        for path, row in on_disk.items()
    ]
    return checkpoints, len(by_path) - len(on_disk)


def _logged(run: Run) -> list[dict[str, Any]]:
    """Return the checkpoints that the run logged, in order."""
    if not warehouse_dir().is_dir():
        return []
    with open_warehouse(warehouse_dir(), run=run.id) as warehouse:
        rows: list[dict[str, Any]] = warehouse.sql(LOGGED, run=run.id).pl().to_dicts()
        return rows


def loading_problem(folder: Path) -> str:
    """Return why transformers cannot load a checkpoint as a language model with its tokenizer, or "".

    Reads the config, the tokenizer and the headers of the weights, and no weights.
    """
    try:
        check_files(folder)
    except CheckpointError as error:
        return str(error)
    config = read_json(folder / "config.json") or {}
    architectures = config.get("architectures") or [""]
    if not str(architectures[0]).endswith("ForCausalLM"):
        return f"{folder / 'config.json'} names no causal language model, but {architectures[0]!r}."
    if not any(True for _ in _tensors(folder)):
        return f"{folder} has no weights (*.safetensors)."
    tokenizer = read_json(folder / "tokenizer_config.json")
    if tokenizer is None or not any(
        (folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")
    ):
        return f"{folder} has no readable tokenizer."
    return ""


def _tensors(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as weights:
            yield from weights.keys()


def _failure(folder: Path) -> str:
    """Load a checkpoint with transformers, and return why that failed, or ""."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        AutoTokenizer.from_pretrained(folder)
        _, notes = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, ignore_mismatched_sizes=True)
    except Exception as error:  # noqa: BLE001 - transformers raises errors of many kinds, and each one is the answer
        return f"transformers: {first_line(error)}"
    if other := sorted(str(key[0]) for key in notes["mismatched_keys"]):
        return f"{folder / 'config.json'} does not fit the shape of {other[0]} in the weights."
    if notes["unexpected_keys"]:
        return f"{folder} has weights that its model does not read: {min(notes['unexpected_keys'])}."
    return f"{folder} lacks weights: {min(notes['missing_keys'])}." if notes["missing_keys"] else ""
