"""A launcher whose runs are a formula: their validations go into a real warehouse, one step a look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweeps.driver import Sweep
from sweeps.launcher import StartedTrial, Status
from sweeps.space import Space
from sweeps.study import open_study
from userrl_core.records import ModelCall, RolloutContext, Task, Trajectory, Turn
from userrl_core.seeding import content_hash
from warehouse.write.turn_log import TurnLog


class Interrupted(BaseException):
    """Stands for kill -9 of the driver: nothing after it runs, not even cleaning up of trials."""


class WritingLauncher:
    """value: of the overrides; price: dollars of each validation step."""

    def __init__(
        self, warehouse: Path, value: Callable[[Mapping[str, Any]], float], *, steps: int = 3, price: float = 0.0
    ) -> None:
        self.warehouse, self.value, self.steps, self.price = warehouse, value, steps, price
        self.started: list[tuple[str, int]] = []
        self.labels: list[str] = []
        self.shown: list[str] = []
        self.progress: dict[str, int] = {}
        self.cancelled: list[str] = []
        self.fail_first: set[str] = set()
        self.die_after: int | None = None
        self.logs: dict[str, TurnLog] = {}
        self.overrides: dict[str, Mapping[str, Any]] = {}

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str, display_name: str) -> StartedTrial:
        if self.die_after is not None and len(self.started) >= self.die_after:
            raise Interrupted
        run_id = content_hash([dict(overrides), seed])
        self.started.append((run_id, seed))
        self.labels.append(label)
        self.shown.append(display_name)
        self.progress.setdefault(run_id, 0)
        self.overrides[run_id] = overrides
        return StartedTrial(handle=run_id, run_id=run_id)

    def status(self, handle: str) -> Status:
        if handle not in self.progress:
            return "failed"
        if handle in self.fail_first:
            self.fail_first.discard(handle)
            return "failed"
        if self.progress[handle] >= self.steps:
            return "completed"
        self.progress[handle] += 1
        score = self.value(self.overrides[handle])
        if handle not in self.logs:
            self.logs[handle] = TurnLog.open(self.warehouse, handle)
        write_validation(self.logs[handle], self.progress[handle], score, self.price)
        if self.progress[handle] < self.steps:
            return "running"
        self.logs.pop(handle).close()
        return "completed"

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)

    def gpu_hours(self, run_id: str) -> float:
        return 0.5 * self.progress[run_id]


def write_validation(log: TurnLog, step: int, score: float, price: float = 0.0) -> None:
    for attempt in range(2):
        write_attempt(
            log, RolloutContext("rl-1", step, "validate", "local"), score=score, attempt=attempt, price=price / 2
        )
    log.metrics({"validate/score/mean": score}, stage="rl-1", step=step)


def write_attempt(
    log: TurnLog, where: RolloutContext, *, score: float, attempt: int = 0, horizon: int = 4, price: float = 0.0
) -> None:
    task = Task("function", f"t{attempt}", "validation", {})
    trajectory = Trajectory(task, attempt, horizon=horizon, seed=0, context=where, group="g")
    trajectory.traj_id = log.begin(trajectory)
    calls = [ModelCall("user", "gpt-4o", 100, 20, 0.2, price=price)] if price else []
    turn = Turn(1, "answer", "1", "", "m", "o", score, model_calls=calls)
    trajectory.turns.append(turn)
    log.turn(trajectory, turn)
    trajectory.stop_reason, trajectory.score = "success", score
    log.end(trajectory)


def make_space(**fields: Any) -> Space:
    base: dict[str, Any] = {
        "name": "gammas",
        "source": "ours",
        "recipe": "equalized-r2g",
        "parameters": {"gamma": {"key": "credit.gamma", "options": [0.6, 0.7, 0.8, 0.9]}},
        "sampler": {"name": "grid"},
        "budget": {"trials": 4},
        "pruning": {"enabled": False},
        "confirm": {"top": 1, "seeds": [101, 102]},
    }
    return Space.model_validate({**base, **fields})


def make_sweep(space: Space, root: Path, launcher: WritingLauncher, **fields: Any) -> Sweep:
    study = open_study(space, root / "sweeps" / space.name)
    options: dict[str, Any] = {"parallel": 2, "sleep": lambda _: None, "say": lambda _: None, **fields}
    return Sweep(space, study, launcher, root / "warehouse", **options)


def peak_at_08(overrides: Mapping[str, Any]) -> float:
    return 1.0 - abs(float(overrides["credit.gamma"]) - 0.8)
