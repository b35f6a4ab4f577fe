"""The interfaces a trainer needs: a curriculum for tasks and horizons, and a progress callback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from userrl_core.records import Task

History = Sequence[Mapping[str, float | None]]
"""The record of each step, oldest first. Each entry holds ``step`` and the step's metrics, None where nothing was scored."""


class Curriculum(Protocol):
    """The tasks and the horizon of each step. Steps count from 1 over the whole run."""

    def horizon(self, step: int, history: History) -> int:
        """Return the maximum turns in this step; a pure function of its arguments."""
        ...

    def stage_of(self, step: int) -> str:
        """Return the stage's name, ``rl-1`` ... ``rl-n``."""
        ...

    def draw(self, step: int, n: int) -> list[Task]:
        """Return the next n tasks and advance the sampler."""
        ...

    def record(self, step: int, stats: Mapping[str, float]) -> None:
        """Record the metrics of a completed step, for gates."""
        ...

    def observe(self, task_key: str, success: float, tokens: float | None = None) -> None:
        """Record the success rate of a task's group. Samplers that prefer tasks with mixed outcomes use it. tokens:
        the mean number of tokens of a trajectory in the group, None if the trainer does not count them.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """Return the progress through the epochs, to be logged with the step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return everything that `draw` and the gates depend on, JSON-able."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state_dict`."""
        ...


@runtime_checkable
class GroupCurriculum(Protocol):
    """A curriculum that may give the groups of one step different horizons (local backend)."""

    def group_horizons(self, step: int, history: History, groups: range) -> list[int]:
        """Return the horizons of groups, which are counted from 0 in their step; a pure function."""
        ...

    def record_outcomes(self, step: int, groups: int, outcomes: Sequence[tuple[int, int]]) -> None:
        """Record a step's groups and conversations, before `Curriculum.record`.

        outcomes: for each conversation, the turns that it was allowed and the turns after which it succeeded (0 if it failed).
        """
        ...


class Progress(Protocol):
    """A callback after every step."""

    def __call__(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """Report that `step` of `total` is complete. metrics: the step's numbers."""
        ...
