"""Proofs that tasks can be solved: their gold solutions, executed with the rule user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from userrl_core.errors import TaskError
from userrl_core.gyms import gym_class
from userrl_core.gyms.validate import validate
from userrl_core.records import Task


@dataclass(frozen=True)
class Proof:
    """The result of one task's gold solution.

    state: ``solved``; ``failed`` (the gold solution misses the full score); ``not provable`` (there is no gold solution);
    ``not playable`` (the task lacks data that the gym needs).
    """

    gym: str
    id: str
    source: str
    state: Literal["solved", "failed", "not provable", "not playable"]
    score: float | None
    reason: str

    @property
    def is_fault(self) -> bool:
        """Return whether this is a fault. A published task may lack its data or its proof, but a task of ours may not."""
        return self.state == "failed" or (self.source == "ours" and self.state != "solved")


def proofs(tasks: Iterable[Task]) -> Iterator[Proof]:
    """Execute each task's gold solution and yield the result."""
    for task in tasks:
        result = validate(task)
        state: Literal["solved", "failed", "not provable", "not playable"]
        if result.ok:
            state = "solved"
        elif not result.playable:
            state = "not playable"
        elif result.score is None and not has_gold(task):
            state = "not provable"
        else:
            state = "failed"
        yield Proof(task.gym, task.id, task.source, state, result.score, result.reason)


def has_gold(task: Task) -> bool:
    """Return whether the gym knows a solution of this task. A gold solution that cannot be replayed does not count."""
    kind: Any = gym_class(task.gym)
    try:
        return bool(kind.gold(task, kind.config_type())) if hasattr(kind, "gold") else False
    except TaskError:
        return False


def first_of_each_source(tasks: Sequence[Task], limit: int | None) -> list[Task]:
    """Return at most ``limit`` tasks of each source; None returns all tasks."""
    if limit is None:
        return list(tasks)
    sources = dict.fromkeys(task.source for task in tasks)
    return [task for source in sources for task in [t for t in tasks if t.source == source][:limit]]
