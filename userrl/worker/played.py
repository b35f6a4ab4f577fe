"""The finished conversations of an evaluation and its earlier attempts, with the fields for scores.

A killed evaluation continues, and so do demonstrations. Every attempt logs which job it plays, and finished conversations of
the same job are not repeated. A conversation that was cut off is repeated. So is a rejected one: the user or judge
failed, and may work by now. Conversations of another job, such as one with other weights, are void.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

from userrl.run.fingerprint import Row
from userrl.run.job import StageJob
from userrl_core.records import Flag, Trajectory
from userrl_core.sink import Sink
from warehouse import open_warehouse

BEGUN = "evaluation"
"""The event that logs the job of an attempt at an evaluation or at demonstrations."""


class Played(NamedTuple):
    """One finished conversation. policy, checkpoint: the actor. task: its key. horizon: its maximum number of turns."""

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
        """Return the relevant part of a record."""
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
    """Log that this job is played, and return the scored conversations of earlier attempts.

    Families only add conversations. So the same job with other families, or none, is also an earlier attempt.
    """
    keys = job.model_copy(update={"families": ()}).accepted_keys
    query = """select policy, checkpoint, gym, tier, gym || '/' || task_id, attempt, score, admitted, reject_reason, turns,
                      horizon, coalesce(stop_reason = 'success', false), flags & $format > 0
               from trajectories where run_id = $run and stage = $stage and phase = 'evaluate' and admitted"""
    if not continues(job, sink, keys, "evaluate"):
        return []
    with open_warehouse(job.warehouse, run=job.run_id) as warehouse:
        rows = warehouse.sql(query, run=job.run_id, stage=job.stage, format=int(Flag.FORMAT_ERROR)).fetchall()
    return [Played(*row) for row in rows]


def continues(job: StageJob, sink: Sink, keys: Sequence[str], phase: Literal["evaluate", "distill"]) -> bool:
    """Log that this job is played, and return whether all conversations of earlier attempts are of it.

    If not, they are void. If so, only the rejected ones are, which are played again. keys: those of the job. Attempts of
    earlier versions that did not log their job are of another one.
    """
    starts = """select distinct incarnation from events
                where run_id = $run and kind = $kind and stage = $stage and list_contains($keys, fields->>'key')"""
    ended = """select distinct incarnation, admitted from trajectories
               where run_id = $run and stage = $stage and phase = $phase"""
    with open_warehouse(job.warehouse, run=job.run_id) as warehouse:
        attempts = warehouse.sql(starts, run=job.run_id, kind=BEGUN, stage=job.stage, keys=[*keys]).fetchall()
        earlier = warehouse.sql(ended, run=job.run_id, stage=job.stage, phase=phase).fetchall()
    of_this_job = {incarnation for incarnation, _ in earlier} <= {incarnation for (incarnation,) in attempts}
    if not of_this_job:
        sink.event("rewind", stage=job.stage)
    elif not all(admitted for _, admitted in earlier):
        sink.event("replay", stage=job.stage)
    sink.event(BEGUN, stage=job.stage, key=keys[0])
    return of_this_job


def stored_protocols(job: StageJob) -> dict[tuple[str, str | None, str], Row]:
    """Return the protocols that the run has stored so far, by policy, checkpoint and gym."""
    with open_warehouse(job.warehouse, run=job.run_id) as warehouse:
        rows = warehouse.rows("FROM protocols WHERE run_id = $run", run=job.run_id)
    return {(row["policy"], row["checkpoint"], row["gym"]): row for row in rows}
