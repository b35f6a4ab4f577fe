"""The cold start on verl's SFT trainer: full fine-tuning under FSDP on the distilled chats."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from userrl_core import processes
from userrl_core.distill import read_chats
from userrl_core.errors import ConfigError, TrainingError
from userrl_core.json_files import GrowingLines
from userrl_core.records import CheckpointRecord
from userrl_core.sink import Sink
from userrl_core.training.config import CallForm
from userrl_core.training.finite import check_losses
from userrl_core.training.jobs import StageResult, begun_marker
from userrl_core.training.local.threads import SETTINGS
from userrl_core.training.model_files import RECORD, STATE, check_hashes, hash_of, local_folder
from userrl_core.training.protocols import Progress
from userrl_core.training.verl import checkpoints as files
from userrl_core.training.verl.config import sft_overrides
from userrl_core.training.verl.data import write_sft_parquet
from userrl_core.training.verl.job import VerlSftJob
from userrl_core.training.verl.machine.attention import chosen_attention

if TYPE_CHECKING:
    from userrl_core.training.local.text.calls import CallStyle

NAMES = {"train/loss": "sft/loss/mean", "train/grad_norm": "sft/grad_norm/mean", "train/lr": "sft/lr/value"}


def run_sft(job: VerlSftJob, sink: Sink, progress: Progress | None = None) -> StageResult:
    """Train to the last step; a restart continues from its newest checkpoint.

    The result's checkpoint is a Hugging Face folder that an RL stage starts from. Raises TaskError for unreadable
    chats, ConfigError for too few, TrainingError when verl fails or stops short.
    """
    folder = job.out_dir / "verl"
    root = folder / "checkpoints"
    model = str(job.init or job.model.path or "")
    if not model:
        raise TrainingError(
            "training.backend_cannot", "verl trains a checkpoint. Set model.path to a Hugging Face folder or name."
        )
    model = prepared(model, job.model.calls, folder / "model")
    if not job.sft.enabled:
        return _untrained(model)
    if job.chats is None:
        raise ConfigError(
            "demonstrations.too_few", "verl's cold start needs demonstrations. Give chats, a file of conversations."
        )
    from userrl_core.training.local.model import check_elsewhere

    check_elsewhere(model)
    rows = write_sft_parquet(folder / "sft.parquet", read_chats(job.chats), _style(model))
    overrides = sft_overrides(job, folder, model, rows, chosen_attention(job.cluster))
    (folder / "overrides.txt").write_text("\n".join(overrides) + "\n")
    steps = next(int(o.partition("=")[2]) for o in overrides if o.startswith("trainer.total_training_steps="))
    before = files.newest(root)
    numbers: dict[str, float] = {}
    reached = (files.step_of(before) or 0) if before is not None else 0
    if reached < steps:
        marker = begun_marker(job.out_dir)
        # An earlier start logged steps that are made again. Earlier versions made no marker.
        if marker.exists() or list(folder.glob("metrics-*.jsonl")):
            sink.event("rewind", stage=job.stage, step=reached)
        marker.touch()
        numbers = _train(job, overrides, steps, sink, progress)
    last = files.newest(root)
    if last is None or files.step_of(last) != steps:
        raise TrainingError(
            "training.no_checkpoint",
            f"verl's SFT trainer ended without an error, but its last checkpoint is not of step {steps}. See "
            f"{folder / 'output.txt'}.",
        )
    card = files.describe(last, job.stage, None)
    path = files.hf_folder(last)
    sink.checkpoint(CheckpointRecord(card.id, str(path), job.stage, card.step, card.sha256))
    return StageResult(checkpoint=path, id=card.id, sha256=card.sha256, step=steps, metrics=numbers)


def prepared(model: str, calls: CallForm, folder: Path) -> str:
    """Return the model whose calls have this form: a folder with links to its files and a tokenizer that says the form.

    With json the model is returned as it is. Raises TrainingError for a model that is not on this machine.
    """
    if calls == "json":
        return model
    source = local_folder(model)
    if source is None:
        raise TrainingError(
            "checkpoint.missing", f"{model} is not on this machine. Download it first: hf download {model}."
        )
    check_hashes(source)
    from userrl_core.training.local.text.calls import set_form
    from userrl_core.training.local.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(source)
    set_form(None, tokenizer, calls)
    tokenizer.save_pretrained(folder)
    for file in source.iterdir():
        link = folder / file.name
        if link.is_symlink():  # of an earlier start, and the model may have moved since
            link.unlink()
        # The hashes in these files were checked above, and are not those of the new tokenizer.
        if not link.exists() and file.name not in (STATE, RECORD):
            link.symlink_to(file.resolve())
    return str(folder)


def _style(model: str) -> CallStyle | None:
    """Return the style of a model on this machine. None: its name is on the hub, and it was not fetched."""
    if local_folder(model) is None:
        return None
    from userrl_core.training.local.text.calls import style_of
    from userrl_core.training.local.text.tokenizer import load_tokenizer

    return style_of(load_tokenizer(model))


def _untrained(model: str) -> StageResult:
    parts = sorted(Path(model).glob("*.safetensors")) if Path(model).is_dir() else []
    sha256 = hash_of(parts) if parts else hashlib.sha256(model.encode()).hexdigest()
    return StageResult(checkpoint=Path(model), id=f"base-{sha256[:12]}", sha256=sha256, step=0)


def _train(
    job: VerlSftJob, overrides: list[str], steps: int, sink: Sink, progress: Progress | None
) -> dict[str, float]:
    cluster, folder = job.cluster, job.out_dir / "verl"
    lines = GrowingLines(folder / f"metrics-{len(list(folder.glob('metrics-*.jsonl')))}.jsonl")
    numbers: dict[str, float] = {}

    def tick() -> None:
        for line in lines:
            check_losses({"train/loss": line["data"].get("train/loss", 0.0)}, job.stage, int(line["step"]))
            numbers.clear()
            numbers.update(_renamed(line["data"]))
            sink.metrics(numbers, stage=job.stage, step=int(line["step"]))
            if progress is not None:
                progress(int(line["step"]), steps, numbers)

    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={cluster.cold_start_gpus}"]
    processes.run(
        [cluster.python or sys.executable, "-u", *launcher, "-m", "verl.trainer.sft_trainer", *overrides],
        folder,
        name="verl",
        env={**SETTINGS, "HYDRA_FULL_ERROR": "1", "VERL_FILE_LOGGER_PATH": str(lines.path)},
        stall=job.stall,
        on_tick=tick,
    )
    return numbers


def _renamed(data: Mapping[str, Any]) -> dict[str, float]:
    return {NAMES.get(key, f"verl/{key}"): float(v) for key, v in data.items() if isinstance(v, (int, float))}
