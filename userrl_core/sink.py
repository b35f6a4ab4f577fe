"""Where records go. Core and trainers know only this protocol; the warehouse's turn log is one implementation.

Order of calls for one trajectory: `begin` (gives the id), `turn` after each turn, `end` once. `credits` follows when the
trajectory's group is complete. What a call returned for survives the death of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from userrl_core.records import CheckpointRecord, Task, Trajectory, Turn


class Sink(Protocol):
    """Receives everything that happens in a run. Methods are synchronous and quick; they may be called from asyncio."""

    def begin(self, trajectory: Trajectory) -> int:
        """A conversation starts; returns its globally unique traj_id."""
        ...

    def turn(self, trajectory: Trajectory, turn: Turn) -> None:
        """A turn is complete (its model calls included)."""
        ...

    def end(self, trajectory: Trajectory) -> None:
        """The conversation is over: score, stop_reason, admitted and reject_reason are final."""
        ...

    def credits(self, traj_id: int, shaped: Sequence[float], advantage: Sequence[float]) -> None:
        """Per-turn shaped credit and advantage, both of shape [T], known once the group is complete."""
        ...

    def tasks(self, tasks: Iterable[Task]) -> None:
        """Tasks that this run uses; writing the same task twice is harmless."""
        ...

    def demonstrations(self, traj_ids: Iterable[int], *, stage: str = "sft") -> None:
        """Which logged trajectories a cold start learns from, best first."""
        ...

    def metrics(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        """Numbers of one step, named ``scope/subset/stat``."""
        ...

    def stage(self, stage: str, status: str, **fields: Any) -> None:
        """A stage began or ended (status: started, finished, failed, reused), with what is worth knowing."""
        ...

    def event(self, kind: str, **fields: Any) -> None:
        """Anything else that happened, JSON-able. ``kind="rewind", stage=..., step=s`` voids what lies after step s."""
        ...

    def checkpoint(self, record: CheckpointRecord) -> None:
        """A checkpoint is complete on disk."""
        ...

    def flush(self) -> None:
        """Everything so far is on disk (fsync) when this returns."""
        ...

    def close(self) -> None:
        """Flush, seal and release; the sink takes nothing more."""
        ...
