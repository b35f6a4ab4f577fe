"""Cold starts that the runs of a home share, trained once (`TrainRequest.share_cold_start`).

Arms of a study often differ in RL alone. Their cold starts of a seed are the same, bit for bit, and a third of the work
on a laptop. A run leaves the path of its trained cold start under a hash of everything that decides the weights. The
next run with that hash links those files, and its trainer continues from them at the last step, so it has nothing to do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import userrl_core
from userrl.machine.hashes import file_hash
from userrl.run.job import StageJob
from userrl.run.results import TrainResult
from userrl.worker.distill import trained_on
from userrl_core.errors import CheckpointError
from userrl_core.file_lock import locked
from userrl_core.json_files import read_json, write_json
from userrl_core.records import CheckpointRecord
from userrl_core.seeding import content_hash
from userrl_core.sink import Sink
from userrl_core.training.jobs import SftJob
from userrl_core.training.local.checkpoint import read_checkpoint

FOLDER = "cold-starts"
LINKED = "linked.json"
"""The file in a linked checkpoint with the entry that it was linked by. An interrupted stage finds it again."""
_NO_PART_OF_WEIGHTS = {"out_dir", "chats", "checkpoint_every", "keep_checkpoints"}


def index_file(job: StageJob, settings: SftJob) -> Path | None:
    """Return the file that names a trained cold start for this job.

    None if the job starts from a checkpoint, trains on a GPU or trains adapters, or if its model is not a local folder.
    """
    path = settings.model.path
    if settings.init is not None or settings.chats is None or settings.device != "cpu" or settings.sft.lora is not None:
        return None
    if path is not None and not Path(path).is_dir():
        return None
    pretrained = (
        [[file.name, file_hash(file)] for file in sorted(Path(path).iterdir()) if file.is_file()] if path else []
    )
    chats = trained_on(settings.chats)
    decisive = settings.model_dump(mode="json", exclude=_NO_PART_OF_WEIGHTS)
    del decisive["model"]["path"]
    return _home(job) / FOLDER / f"{content_hash([decisive, chats, pretrained, _makers()])}.json"


def shared(job: StageJob, settings: SftJob, sink: Sink, train: Callable[[], TrainResult]) -> TrainResult:
    """Return a cold start: an earlier run's if there is one, with its cost, else what `train` gives."""
    index = index_file(job, settings)
    if index is None:
        return train()

    def waiting() -> None:
        print("Another run trains this cold start. This one waits, and links it.", flush=True)

    with locked(index.with_suffix(".lock"), waiting):
        began, cpu = time.monotonic(), time.process_time()
        link(index, job, sink)
        result = train()
        source = read_json(result.checkpoint / LINKED)
        if source is None:
            used = {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}
            leave(index, job, result, used)
            return result
    print(f"This is the cold start of run {source['run']}.", flush=True)
    cost = {"seconds": source["seconds"], "cpu_seconds": source["cpu_seconds"]}
    return result.model_copy(update={"shared_from": source["run"], "metrics": source["metrics"], **cost})


def link(index: Path, job: StageJob, sink: Sink) -> None:
    """Link an earlier run's cold start into the job's folder, with its entry in the index.

    Do nothing without a usable one, or if the job has a checkpoint already.
    """
    root, written = job.folder / "checkpoints", read_json(index)
    if written is None or any(root.glob("step-*")):
        return
    trained = _home(job) / written["checkpoint"]
    partial = root / f".{trained.name}.linked"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(trained, partial, copy_function=_link_file)
        state = read_checkpoint(partial)
        if state.sha256 != written["sha256"]:
            raise CheckpointError("checkpoint.damaged", f"{trained} has other weights than it had.")
        write_json(partial / LINKED, written)
    except (OSError, CheckpointError):
        shutil.rmtree(partial, ignore_errors=True)
        return
    folder = partial.rename(root / trained.name)
    sink.checkpoint(CheckpointRecord(state.id, str(folder), job.stage, state.step, state.sha256))


def leave(index: Path, job: StageJob, result: TrainResult, used: Mapping[str, float]) -> None:
    """Name the job's checkpoint for later runs, in place of one that is of no use. used: the seconds that it took."""
    checkpoint = result.checkpoint.relative_to(_home(job)).as_posix()
    entry = {"checkpoint": checkpoint, "sha256": result.sha256, "run": job.run_id, "metrics": result.metrics, **used}
    with contextlib.suppress(OSError):  # the cold start is there, and the next run trains its own
        write_json(index, entry)


@cache
def _makers() -> list[str]:
    """Return what computes the weights, as a part of the hash: the core's source, the processor and the libraries."""
    import torch  # imported here: a stage on verl needs none in this process

    core = Path(str(userrl_core.__file__)).parent
    code = [[path.relative_to(core).as_posix(), file_hash(path)] for path in sorted(core.rglob("*.py"))]
    libraries = [version(package) for package in ("torch", "transformers", "tokenizers")]
    return [content_hash(code), _processor(), torch.backends.cpu.get_cpu_capability(), *libraries]


def _processor() -> str:
    """Return the processor's name. Another one may sum in another order, which changes the last bits."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return ""


def _home(job: StageJob) -> Path:
    return job.run_folder.parents[1]


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)  # checkpoints are replaced, never changed
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
