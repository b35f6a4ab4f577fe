"""Rejection-sampling self-training: the model learns from its own attempts that went well (STaR, RFT).

One round takes attempts that were logged, keeps the good ones, at most a few per task so that easy tasks do not drown the
others, and trains on them as on demonstrations.
"""

from __future__ import annotations

from collections.abc import Iterable

from userrl_core.distill import Selection, select_top_k, write_chats
from userrl_core.errors import TrainingError
from userrl_core.records import Trajectory
from userrl_core.sink import Sink
from userrl_core.training.jobs import SftJob, StageResult
from userrl_core.training.local.sft import train_sft
from userrl_core.training.protocols import Progress


def train_rejection(
    job: SftJob,
    attempts: Iterable[Trajectory],
    *,
    min_score: float,
    top_k: int = 1000,
    per_task: int = 2,
    sink: Sink | None = None,
    progress: Progress | None = None,
) -> tuple[Selection, StageResult]:
    """One round. attempts: the model's own; those of at least min_score are written to ``job.chats`` (by default
    in job.out_dir) and trained on.

    job.init: the model that made them. Raises TrainingError when none is good enough.
    """
    selection = select_top_k(attempts, top_k, min_score=min_score, per_task=per_task)
    if not selection.kept:
        raise TrainingError(
            f"No attempt reached a score of {min_score:g} (dropped: {selection.dropped}); lower min_score or play easier tasks."
        )
    chats = job.chats or job.out_dir / "chats.jsonl"
    write_chats(chats, selection.kept)
    return selection, train_sft(job.model_copy(update={"chats": chats}), sink, progress)
