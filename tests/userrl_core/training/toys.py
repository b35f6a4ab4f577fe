"""Small but real parts for the training tests: a sink that records, a curriculum over a list of tasks, tiny models."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from userrl_core.distill import select_top_k, to_chat, write_chats
from userrl_core.gyms.registry import tasks
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import CheckpointRecord, Task, Trajectory, Turn
from userrl_core.rollout import run_episodes
from userrl_core.training.config import AlgorithmConfig, ModelConfig, SftConfig
from userrl_core.training.jobs import RlJob, SftJob

TINY = ModelConfig(
    hidden_size=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    mlp=64,
    vocab_size=400,
    prompt_style="brief",
    max_context=256,
)


class RecordingSink:
    """Records all calls, in order."""

    def __init__(self) -> None:
        self.begun: list[Trajectory] = []
        self.ended: list[Trajectory] = []
        self.turns: list[tuple[int, Turn]] = []
        self.credited: dict[int, tuple[list[float], list[float]]] = {}
        self.measured: list[tuple[str, int, dict[str, float]]] = []
        self.judged: list[Trajectory] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.checkpoints: list[CheckpointRecord] = []
        self.task_keys: set[str] = set()

    def begin(self, trajectory: Trajectory) -> int:
        self.begun.append(trajectory)
        return len(self.begun)

    def turn(self, trajectory: Trajectory, turn: Turn) -> None:
        assert trajectory.traj_id is not None
        self.turns.append((trajectory.traj_id, turn))

    def end(self, trajectory: Trajectory) -> None:
        self.ended.append(trajectory)

    def credits(self, traj_id: int, shaped: Sequence[float], advantage: Sequence[float]) -> None:
        self.credited[traj_id] = (list(shaped), list(advantage))

    def judgement(self, trajectory: Trajectory) -> None:
        self.judged.append(trajectory)

    def tasks(self, tasks: Any) -> None:
        self.task_keys |= {task.key for task in tasks}

    def metrics(self, values: Mapping[str, float], *, stage: str, step: int) -> None:
        self.measured.append((stage, step, dict(values)))

    def stage(self, stage: str, status: str, **fields: Any) -> None:
        self.events.append(("stage", {"stage": stage, "status": status, **fields}))

    def event(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))

    def protocols(self, rows: Iterable[Mapping[str, Any]]) -> None: ...

    def demonstrations(self, traj_ids: Iterable[int], *, stage: str = "sft") -> None:
        self.demonstrated = list(traj_ids)

    def checkpoint(self, record: CheckpointRecord) -> None:
        self.checkpoints.append(record)

    def flush(self) -> None: ...

    def close(self) -> None: ...


class ListCurriculum:
    """Tasks in a shuffled order over all steps, with stages of given lengths and horizons."""

    def __init__(self, pool: Sequence[Task], stages: Sequence[tuple[int, int]] = ((1000, 6),), seed: int = 0) -> None:
        self.pool, self.stages, self.seed = list(pool), stages, seed
        self.position = 0
        self.recorded: list[tuple[int, float]] = []
        self.observed: dict[str, float] = {}

    def _index(self, step: int) -> int:
        return next(i for i, (last, _) in enumerate(self.stages) if step <= last)

    def horizon(self, step: int, history: Any, group: int | None = None) -> int:
        return self.stages[self._index(step)][1]

    def stage_of(self, step: int) -> str:
        return f"rl-{self._index(step) + 1}"

    def draw(self, step: int, n: int) -> list[Task]:
        drawn = []
        for _ in range(n):
            epoch, index = divmod(self.position, len(self.pool))
            order = list(range(len(self.pool)))
            random.Random(f"{self.seed}/{epoch}").shuffle(order)
            drawn.append(self.pool[order[index]])
            self.position += 1
        return drawn

    def record(self, step: int, stats: Mapping[str, float], outcomes: Any = ()) -> None:
        self.recorded.append((step, stats.get("rollout/success/mean", 0.0)))

    def observe(self, task_key: str, success: float, tokens: float | None = None, conversations: int = 1) -> None:
        self.observed[task_key] = success

    def metrics(self) -> dict[str, float]:
        return {"curriculum/at/value": float(self.position)}

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.position, "recorded": self.recorded}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = state["at"]
        self.recorded = [(int(step), float(value)) for step, value in state["recorded"]]


def demonstrations(count: int = 60, skill: float = 0.5, seed: int = 0, n: int = 1) -> list[Trajectory]:
    """Scripted trajectories of the first tiny travel tasks."""
    train_tasks = list(tasks("travel", "train", tier="tiny"))[:count]
    return asyncio.run(
        run_episodes(train_tasks, ScriptedPolicy(skill), horizon=6, n=n, seed=seed, prompt_style="brief")
    )


def chats(count: int = 60) -> list[dict[str, Any]]:
    return [to_chat(trajectory) for trajectory in demonstrations(count)]


def sft_job(folder: Path, **changes: Any) -> SftJob:
    """A cold start of a few steps on a few demonstrations, written to the folder."""
    path = folder / "chats.jsonl"
    write_chats(path, select_top_k(demonstrations(), 40).kept)
    settings: dict[str, Any] = {
        "model": TINY,
        "sft": SftConfig(steps=6, lr=5e-3, batch=8),
        "chats": path,
        "out_dir": folder / "sft",
        "threads": 1,
    }
    return SftJob(**settings | changes)


def rl_job(folder: Path, init: Path, **changes: Any) -> RlJob:
    """Two steps of four tasks with four trajectories each."""
    settings: dict[str, Any] = {
        "model": TINY,
        "out_dir": folder / "rl",
        "threads": 1,
        "init": init,
        "last_step": 2,
        "checkpoint_every": 1,
        "algorithm": AlgorithmConfig(group=4, batch=4, minibatches=2, lr=1e-3, max_tokens=24, max_response_tokens=160),
        "validation_horizon": 4,
    }
    return RlJob(**settings | changes)


def travel(split: str = "train", start: int = 100, count: int = 24) -> list[Task]:
    return list(tasks("travel", split, tier="tiny"))[start : start + count]
