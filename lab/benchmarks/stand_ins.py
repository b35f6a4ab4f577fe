"""A curriculum and a sink for benchmarks that call a trainer without a run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from userrl_core.records import Task


class OneHorizon:
    """A curriculum of tasks at one horizon. A step draws its tasks without replacement."""

    def __init__(self, tasks: Sequence[Task], turns: int, seed: int = 0) -> None:
        self.tasks, self.turns, self.seed = tasks, turns, seed

    def horizon(self, step: int, history: Any, group: int | None = None) -> int:
        return self.turns

    def stage_of(self, step: int) -> str:
        return "rl-1"

    def draw(self, step: int, n: int) -> list[Task]:
        return random.Random(f"{self.seed}/{step}").sample(self.tasks, n)

    def choices(self, step: int) -> list[Task] | None:
        return None

    def observe(self, task_key: str, success: float, tokens: float | None = None, conversations: int = 1) -> None: ...

    def record(self, step: int, stats: Any, outcomes: Any = ()) -> None: ...

    def metrics(self) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


class Nowhere:
    """A sink that discards everything."""

    def begin(self, trajectory: Any) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "incarnation":
            raise AttributeError(name)
        return lambda *arguments, **keywords: None
