"""The interfaces a trainer needs: a curriculum for tasks and horizons, and a progress callback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from userrl_core.records import Task

History = Sequence[Mapping[str, float | None]]
"""The record of each step, oldest first. Each entry holds ``step`` and the step's metrics, None where nothing was scored."""


class Curriculum(Protocol):
    """The tasks and the horizon of each step. Steps count from 1 over the whole run."""

    def horizon(self, step: int, history: History, group: int | None = None) -> int:
        """Return the maximum turns of a group's conversations in this step; a pure function of its arguments.

        group: counted from 0 in its step. None: the horizon of the step, which is logged.
        """

    def stage_of(self, step: int) -> str:
        """Return the stage's name, ``rl-1`` ... ``rl-n``."""

    def draw(self, step: int, n: int) -> list[Task]:
        """Return the next n tasks and advance the sampler."""

    def choices(self, step: int) -> list[Task] | None:
        """Return the tasks that draws of the step's stage choose from by earlier outcomes; None if outcomes do not matter."""

    def record(self, step: int, stats: Mapping[str, float], outcomes: Sequence[Sequence[tuple[int, int]]] = ()) -> None:
        """Record the metrics of a completed step, for gates.

        outcomes: by group, the horizon of every admitted conversation and the turns after which it succeeded (0 if it
        failed). Empty if all groups have the same horizon anyway.
        """

    def observe(self, task_key: str, success: float, tokens: float | None = None, conversations: int = 1) -> None:
        """Record the success rate of a task's group. Task curricula use it. tokens: the mean number of tokens of a
        trajectory in the group, None if the trainer does not count them. conversations: the admitted ones of the group.
        """

    def metrics(self) -> dict[str, float]:
        """Return the progress through the epochs, to be logged with the step."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `draw` and the gates depend on, JSON-able."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state_dict`."""


class Progress(Protocol):
    """A callback after every step."""

    def __call__(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """Report that `step` of `total` is complete. metrics: the step's numbers."""
