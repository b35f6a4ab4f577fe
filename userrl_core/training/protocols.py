"""What a trainer needs from others: tasks and horizons from a curriculum, and someone to tell how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from userrl_core.records import Task

History = Sequence[Mapping[str, float | None]]
"""What was recorded per step, oldest first; each entry holds ``step`` and the step's metrics, None where nothing was scored."""


class Curriculum(Protocol):
    """Which tasks a step trains on, and how long conversations may be. Steps count from 1 over the whole run."""

    def horizon(self, step: int, history: History) -> int:
        """The most turns in this step; a pure function of its arguments."""
        ...

    def stage_of(self, step: int) -> str:
        """The stage's name, ``rl-1`` ... ``rl-n``."""
        ...

    def draw(self, step: int, n: int) -> list[Task]:
        """The next n tasks; advances the sampler."""
        ...

    def record(self, step: int, stats: Mapping[str, float]) -> None:
        """The step is complete and these are its metrics, for gates that look at them."""
        ...

    def observe(self, task_key: str, success: float, tokens: float | None = None) -> None:
        """The share of a task's group that succeeded, for samplers that prefer mixed groups, and the mean tokens of its
        trajectories where the trainer counts them."""
        ...

    def metrics(self) -> dict[str, float]:
        """How far the epochs are, to be logged with the step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that `draw` and the gates depend on, JSON-able."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
        ...


class Progress(Protocol):
    """Told after every step."""

    def __call__(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """step of total is complete; metrics: the step's numbers."""
        ...
