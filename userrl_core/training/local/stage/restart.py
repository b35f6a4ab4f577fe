"""Where a stage starts, and the checkpoints by which it can be started again.

A killed stage continues from its newest checkpoint. What it logged after that checkpoint is voided (``rewind``) and
played again, with the same tokens.
"""

from __future__ import annotations

from pathlib import Path

from userrl_core.errors import CheckpointError, TrainingError
from userrl_core.records import CheckpointRecord
from userrl_core.sink import Sink
from userrl_core.training.jobs import Best, RlJob, StageResult, begun_marker, void_earlier_start
from userrl_core.training.local.checkpoint import (
    CheckpointState,
    newest,
    prune,
    read_state,
    step_folder,
    write_checkpoint,
)
from userrl_core.training.local.state import TrainState


class Restart:
    """The checkpoints of one stage.

    start: the checkpoint to start from, the stage's own newest one or the job's. resumed: it is the stage's own.
    parent: id of the checkpoint that plays, None for one that we did not write. saved: the stage's newest checkpoint.
    best: the checkpoint with the best validation score, of this stage or an earlier one.
    """

    def __init__(self, job: RlJob, sink: Sink) -> None:
        self._job, self._sink = job, sink
        self._root = job.out_dir / "checkpoints"
        self._root.mkdir(parents=True, exist_ok=True)
        # A damaged checkpoint is passed over for an older one: it costs steps, and no weights are guessed.
        own = newest(self._root, report=self._log_skipped)
        self.resumed = own is not None
        self.start = own[0] if own else job.init
        self.saved: CheckpointState | None = own[1] if own else None
        self.parent = self.saved.id if self.saved else _id_of(job.init)
        self.best = _best_of(self._root, job.best) if own else job.best

    @property
    def begins_run(self) -> bool:
        """Return whether this is a run's first stage, not yet begun. It then takes a model, but no trainer state."""
        return not self.resumed and self._job.first_step == 1

    def check(self, restored: bool, step: int) -> None:
        """Raise TrainingError where the stage cannot continue the checkpoint that it starts from.

        restored: whether trainer state was loaded from it. step: the last step of that state.
        """
        job = self._job
        if not restored:
            if job.first_step == 1:
                return
            raise TrainingError(
                "checkpoint.wrong_step",
                f"{job.init} has no trainer state to begin step {job.first_step} with. Start at step 1.",
            )
        if not job.first_step - 1 <= step <= (job.last_step if self.resumed else job.first_step - 1):
            raise TrainingError(
                "checkpoint.wrong_step",
                f"{job.init} ends at step {step}, and a stage that begins at step {job.first_step} cannot "
                "continue it. Give the checkpoint of the step before.",
            )

    def rewind(self, stage: str, step: int, *, finished: bool) -> None:
        """Void what earlier processes of this stage logged after the step that it continues from.

        The checkpoint that it continues from is logged again: a killed process may have written it without its row.
        """
        marker = begun_marker(self._job.out_dir)
        # A finished stage only returns its result.
        if marker.exists() and not finished:
            if self._job.stage is None:
                # The validation before a run's first step is logged at step 0 and is repeated.
                self._sink.event("rewind", stage=stage, step=step - 1 if self.begins_run else step)
            else:
                void_earlier_start(marker, self._sink, stage, self._job.first_step, step if self.resumed else None)
        marker.write_text("")
        if self.saved is not None:
            self._log(self.start, self.saved)

    def save(self, state: TrainState, stage: str, score: float | None) -> None:
        """Write a checkpoint of the state. score: of its validation, None without one."""
        # First the log: a resumed stage must find on disk all turns that its weights learnt from.
        self._sink.flush()
        folder = step_folder(self._root, state.step)
        saved = write_checkpoint(folder, state.save, stage=stage, step=state.step, parent=self.parent, score=score)
        if score is not None and (self.best is None or score > self.best.score):
            # Of equal scores the earlier checkpoint stays the best one.
            self.best = Best(path=folder, id=saved.id, step=state.step, score=score)
        self._log(folder, saved)  # before the removal of older ones, which may take long
        prune(self._root, self._job.keep_checkpoints, self.best.path if self.best else None)
        self.saved, self.parent = saved, saved.id

    def result(self, stage: str, metrics: dict[str, float]) -> StageResult:
        """Return the result of the finished stage. metrics: the last step's."""
        if self.saved is None:
            raise TrainingError("training.no_checkpoint", f"Stage {stage} ended without a checkpoint. Start it again.")
        return StageResult(
            checkpoint=step_folder(self._root, self.saved.step),
            id=self.saved.id,
            sha256=self.saved.sha256,
            step=self.saved.step,
            best=self.best,
            metrics=metrics,
        )

    def _log(self, folder: Path, saved: CheckpointState) -> None:
        parent, score = saved.parent, saved.score
        record = CheckpointRecord(saved.id, str(folder), saved.stage, saved.step, saved.sha256, parent, score)
        self._sink.checkpoint(record)

    def _log_skipped(self, folder: Path, reason: str) -> None:
        self._sink.event("checkpoint_passed_over", path=str(folder), reason=reason)


def _id_of(path: Path) -> str | None:
    return read_state(path).id if (path / "state.json").exists() else None


def _best_of(root: Path, earlier: Best | None) -> Best | None:
    """Return the best validated checkpoint among those on disk and the best of earlier stages."""
    best = earlier
    for folder in sorted(root.glob("step-*")):
        try:
            state = read_state(folder)
        except CheckpointError:
            continue  # damaged: `newest` has logged it
        if state.score is not None and (best is None or state.score > best.score):
            best = Best(path=folder, id=state.id, step=state.step, score=state.score)
    return best
