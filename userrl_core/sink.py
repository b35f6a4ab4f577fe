"""The protocol through which rollouts and trainers log; the warehouse's turn log is one implementation.

Order of calls for one trajectory: `begin` (returns the id), `turn` after each turn, `end` once. `credits` follows when the
trajectory's group is complete. Once a call has returned, its data survives the death of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from userrl_core.records import CheckpointRecord, Task, Trajectory, Turn


class Sink(Protocol):
    """Receives everything that happens in a run. Methods are synchronous and fast enough to be called from asyncio."""

    def begin(self, trajectory: Trajectory) -> int:
        """A trajectory starts; returns its globally unique traj_id."""
        ...

    def turn(self, trajectory: Trajectory, turn: Turn) -> None:
        """A turn is complete, including its model calls."""
        ...

    def end(self, trajectory: Trajectory) -> None:
        """The trajectory is complete: score, stop_reason, admitted and reject_reason are final."""
        ...

    def credits(self, traj_id: int, shaped: Sequence[float], advantage: Sequence[float]) -> None:
        """Per-turn shaped credit and advantage, both of shape [T], known once the group is complete."""
        ...

    def judgement(self, trajectory: Trajectory) -> None:
        """What a judge said of an ended trajectory (`Trajectory.judgement`), and the calls of its model."""
        ...

    def tasks(self, tasks: Iterable[Task]) -> None:
        """Tasks that this run uses; logging a task twice is harmless."""
        ...

    def demonstrations(self, traj_ids: Iterable[int], *, stage: str = "sft") -> None:
        """The logged trajectories that a cold start is trained on, best first."""
        ...

    def metrics(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        """Metrics of one step, named ``scope/subset/stat``."""
        ...

    def stage(self, stage: str, status: str, **fields: Any) -> None:
        """A stage started or ended (status: started, finished, failed, reused); fields hold the details."""
        ...

    def event(self, kind: str, **fields: Any) -> None:
        """Any other event; fields are JSON-serialisable. ``kind="rewind", stage=..., step=s`` voids everything after step s.

        ``kind="replay", stage=...`` voids the rejected trajectories of earlier starts of a stage.
        """
        ...

    def checkpoint(self, record: CheckpointRecord) -> None:
        """A checkpoint is complete on disk."""
        ...

    def flush(self) -> None:
        """Everything so far is on disk (fsync) when this returns."""
        ...

    def close(self) -> None:
        """Flush and release; the sink accepts nothing more."""
        ...
