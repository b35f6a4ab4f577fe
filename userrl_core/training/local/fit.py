"""The loop of supervised training: steps, checkpoints, exact resume."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

from userrl_core.records import CheckpointRecord
from userrl_core.seeding import derive_seed
from userrl_core.sink import Sink
from userrl_core.training.jobs import StageResult, TrainingJob, begun_marker
from userrl_core.training.local.checkpoint import (
    CheckpointState,
    newest,
    prune,
    read_state,
    step_folder,
    write_checkpoint,
)
from userrl_core.training.local.state import TrainState
from userrl_core.training.protocols import Progress

Step = Callable[[int, Sequence[int]], dict[str, float]]
"""A function that executes step n (from 1) on these rows and returns its metrics."""


def own_checkpoint(job: TrainingJob) -> Path | None:
    """Return the newest complete checkpoint that this job wrote, or None."""
    checkpoint = newest(_root(job))
    return checkpoint[0] if checkpoint else None


def fit(
    job: TrainingJob,
    stage: str,
    state: TrainState,
    total: int,
    batches: Iterator[Sequence[int]],
    step: Step,
    sink: Sink | None = None,
    progress: Progress | None = None,
) -> StageResult:
    """Train to step `total`, from the job's newest checkpoint if it has one. The state's model must come from that
    checkpoint.
    """
    root = _root(job)
    root.mkdir(parents=True, exist_ok=True)
    checkpoint = own_checkpoint(job)
    saved: CheckpointState | None = None
    if checkpoint is not None and state.restore(checkpoint):
        saved = read_state(checkpoint)
        _log(checkpoint, saved, sink)  # again: a killed start may have written it without its row
    if sink is not None:
        marker = begun_marker(job.out_dir)
        # A finished job only returns its result. Earlier versions made no marker.
        if (saved is not None or marker.exists()) and state.step < total:
            sink.event("rewind", stage=stage, step=state.step)
        marker.touch()
    metrics: dict[str, float] = {}
    for number in range(1, total + 1):
        rows = next(batches)
        # Batches of finished steps are drawn all the same, so that the next one is as without a restart.
        if number <= state.step:
            continue
        metrics = step(number, rows)
        state.check_finite(metrics, stage, number)
        state.step = number
        if sink is not None:
            sink.metrics(metrics, stage=stage, step=number)
        if number % job.checkpoint_every == 0 and number < total:
            saved = _save(state, job, stage, sink)
        if progress is not None:
            progress(number, total, metrics)
    if saved is None or saved.step != total:
        saved = _save(state, job, stage, sink)
    return StageResult(
        checkpoint=step_folder(root, total), id=saved.id, sha256=saved.sha256, step=total, metrics=metrics
    )


def shuffled_batches(rows: int, size: int, seed: int) -> Iterator[list[int]]:
    """Yield endless batches of row numbers. Each epoch has its own shuffle, and a batch may span two epochs."""
    pending: list[int] = []
    for epoch in count():
        order = list(range(rows))
        random.Random(derive_seed(seed, "epoch", epoch)).shuffle(order)
        pending += order
        while len(pending) >= size:
            yield pending[:size]
            del pending[:size]


def _save(state: TrainState, job: TrainingJob, stage: str, sink: Sink | None) -> CheckpointState:
    root = _root(job)
    folder = step_folder(root, state.step)
    saved = write_checkpoint(folder, state.save, stage=stage, step=state.step)
    _log(folder, saved, sink)  # before the removal of older ones, which may take long
    prune(root, job.keep_checkpoints, None)
    return saved


def _log(folder: Path, saved: CheckpointState, sink: Sink | None) -> None:
    if sink is not None:
        sink.checkpoint(CheckpointRecord(saved.id, str(folder), saved.stage, saved.step, saved.sha256))


def _root(job: TrainingJob) -> Path:
    return job.out_dir / "checkpoints"
