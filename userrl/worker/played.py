"""What an evaluation has played: the part of a conversation that its scores are made of, and those of earlier starts.

An evaluation that was killed goes on: every start says in the log which job it plays, and conversations that ended under the
same job are not played again. One that was cut off in its middle has no end in the log, and is played anew. So is one that was
rejected: the user or the judge failed, and may work by now.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from userrl.run.job import StageJob
from userrl_core.records import Flag, Trajectory
from userrl_core.sink import Sink
from userrl_core.training.jobs import begun_marker
from warehouse import open_warehouse

BEGUN = "evaluation"
"""The event by which a start says which job it plays."""


class Played(NamedTuple):
    """One conversation that ended. policy and checkpoint: who acted. task: its key. horizon: the turns that it was allowed."""

    policy: str
    checkpoint: str | None
    gym: str
    tier: str
    task: str
    attempt: int
    score: float | None
    admitted: bool
    reject_reason: str | None
    turns: int
    horizon: int
    solved: bool
    format_error: bool

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """From the record."""
        task, context = trajectory.task, trajectory.context
        return cls(
            context.policy,
            context.checkpoint,
            task.gym,
            task.tier,
            task.key,
            trajectory.attempt,
            trajectory.score,
            trajectory.admitted,
            trajectory.reject_reason,
            len(trajectory.turns),
            trajectory.horizon,
            trajectory.stop_reason == "success",
            any(turn.flags & Flag.FORMAT_ERROR for turn in trajectory.turns),
        )


def begin(job: StageJob, sink: Sink) -> list[Played]:
    """Say in the log that this job is played; returns what earlier starts of it have played and scored.

    Families add to what is played and change nothing of the rest: the same job with others, or none, is an earlier start too.
    """
    marker, key = begun_marker(job.folder), job.model_copy(update={"families": ()}).key
    earlier, known = _earlier(job, key)
    if not known and marker.exists() and marker.read_text() == key:
        sink.event("rewind", stage=job.stage)  # a version that began again from the start said nothing of its job
    marker.write_text(key)
    admitted = [one for one in earlier if one.admitted]
    if len(admitted) < len(earlier):
        sink.event("replay", stage=job.stage)
    sink.event(BEGUN, stage=job.stage, key=key)
    return admitted


def _earlier(job: StageJob, key: str) -> tuple[list[Played], bool]:
    """What earlier starts of this very job have played, and whether there was one that said so."""
    starts = """select distinct incarnation from events
                where run_id = $run and kind = $kind and stage = $stage and fields->>'key' = $key"""
    ended = """select policy, checkpoint, gym, tier, gym || '/' || task_id, attempt, score, admitted, reject_reason, turns,
                      horizon, coalesce(stop_reason = 'success', false), flags & $format > 0
               from trajectories where run_id = $run and stage = $stage and phase = 'evaluate'
                    and list_contains($starts, incarnation)"""
    with open_warehouse(job.warehouse, run=job.run_id) as warehouse:
        found = warehouse.sql(starts, run=job.run_id, kind=BEGUN, stage=job.stage, key=key).fetchall()
        incarnations = [row[0] for row in found]
        if not incarnations:
            return [], False
        rows = warehouse.sql(
            ended, run=job.run_id, stage=job.stage, format=int(Flag.FORMAT_ERROR), starts=incarnations
        ).fetchall()
    return [Played(*row) for row in rows], True
