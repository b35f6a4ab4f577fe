"""The logging protocol of rollouts and trainers; the warehouse's turn log is one implementation.

Order of calls for one trajectory: `begin` (returns the id), `turn` after each turn, `end` once. `credits` follows
when the trajectory's group is complete. Once a call has returned, its data survives the death of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from userrl_core.records import CheckpointRecord, Task, Trajectory, Turn


class Sink(Protocol):
    """A receiver of everything that happens in a run. Methods are synchronous and fast enough to be called from asyncio."""

    def begin(self, trajectory: Trajectory) -> int:
        """Log the start of a trajectory. Return its globally unique traj_id."""

    def turn(self, trajectory: Trajectory, turn: Turn) -> None:
        """Log a complete turn, including its model calls."""

    def end(self, trajectory: Trajectory) -> None:
        """Log the end of the trajectory: score, stop_reason, admitted and reject_reason are final."""

    def credits(self, traj_id: int, shaped: Sequence[float], advantage: Sequence[float]) -> None:
        """Log per-turn shaped credit and advantage, both of shape [T], known once the group is complete."""

    def judgement(self, trajectory: Trajectory) -> None:
        """Log a judge's verdict on an ended trajectory (`Trajectory.judgement`), and the calls of its model."""

    def protocols(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Log what an evaluation is played with, a row for each policy and gym, with the columns of the table ``protocols``."""

    def tasks(self, tasks: Iterable[Task]) -> None:
        """Log tasks that this run uses; logging a task twice is harmless."""

    def demonstrations(self, traj_ids: Iterable[int], *, stage: str = "sft") -> None:
        """Log the trajectories that a cold start is trained on, best first."""

    def metrics(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        """Log metrics of one step, named ``scope/subset/stat``."""

    def stage(self, stage: str, status: str, **fields: Any) -> None:
        """Log the start or end of a stage (status: started, finished, failed, reused); fields hold the details."""

    def event(self, kind: str, **fields: Any) -> None:
        """Log any other event; fields are JSON-serialisable.

        ``kind="rewind", stage=..., step=s`` voids everything after step s, with ``scope="stage"`` only rows of that
        stage. ``kind="replay", stage=...`` voids the rejected trajectories of earlier starts of a stage.
        """

    def checkpoint(self, record: CheckpointRecord) -> None:
        """Log a checkpoint that is complete on disk."""

    def flush(self) -> None:
        """Write everything so far to disk (fsync) before returning."""

    def close(self) -> None:
        """Flush and release; the sink accepts nothing more."""
