"""Cold starts that the runs of a home share, trained once (`TrainRequest.share_cold_start`).

Arms of a study often differ in RL alone. Their cold starts of a seed are the same, bit for bit, and a third of the work
on a laptop. A run leaves the path of its trained cold start under the hash of everything that decides its weights. The
next run with that hash links those files, and its trainer continues from them at the last step.
"""

from __future__ import annotations

import os
import platform
import shutil
from functools import cache
from pathlib import Path

import torch

import userrl_core
from userrl.machine.hashes import file_hash
from userrl.run.job import StageJob
from userrl_core.distill import read_chats
from userrl_core.json_files import read_json, write_json
from userrl_core.records import CheckpointRecord
from userrl_core.seeding import content_hash
from userrl_core.sink import Sink
from userrl_core.training.jobs import SftJob, StageResult
from userrl_core.training.local.checkpoint import read_state

FOLDER = "cold-starts"
_NO_PART_OF_TRAINING = ("traj_id", "score")
_NO_PART_OF_WEIGHTS = {"out_dir", "chats", "checkpoint_every", "keep_checkpoints"}


def index_file(job: StageJob, settings: SftJob) -> Path | None:
    """Return the file that names a trained cold start for this job. None for a start from a checkpoint, which is not shared."""
    if settings.init is not None or settings.chats is None:
        return None
    chats = [
        {name: value for name, value in chat.items() if name not in _NO_PART_OF_TRAINING}
        for chat in read_chats(settings.chats)
    ]
    path = settings.model.path
    weights = [file_hash(file) for file in sorted(Path(path).glob("*.safetensors"))] if path else []
    machine = [torch.__version__, torch.backends.cpu.get_cpu_capability(), platform.machine()]
    decisive = settings.model_dump(mode="json", exclude=_NO_PART_OF_WEIGHTS)
    return _home(job) / FOLDER / f"{content_hash([decisive, chats, weights, machine, _code()])}.json"


def link(index: Path, job: StageJob, sink: Sink) -> None:
    """Link a cold start that an earlier run trained into the job's folder, unless it has a checkpoint of its own.

    The trainer verifies the files, and trains where they are damaged.
    """
    root, written = job.folder / "checkpoints", read_json(index)
    trained = _home(job) / str((written or {}).get("checkpoint", ""))
    if written is None or not (trained / "state.json").is_file() or any(root.glob("step-*")):
        return
    partial, folder = root / f".{trained.name}.linked", root / trained.name
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(trained, partial, copy_function=_link_file)
    state = read_state(partial)
    sink.checkpoint(CheckpointRecord(state.id, str(folder), job.stage, state.step, state.sha256))
    partial.rename(folder)


def leave(index: Path, job: StageJob, result: StageResult) -> None:
    """Name the result's checkpoint for later runs."""
    if not index.exists():
        index.parent.mkdir(exist_ok=True)
        write_json(index, {"checkpoint": result.checkpoint.relative_to(_home(job)).as_posix()})


def _home(job: StageJob) -> Path:
    return job.run_folder.parents[1]


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)  # checkpoints are replaced, never changed
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)


@cache
def _code() -> str:
    """Return a hash of the core's source."""
    core = Path(str(userrl_core.__file__)).parent
    return content_hash([[path.relative_to(core).as_posix(), file_hash(path)] for path in sorted(core.rglob("*.py"))])
