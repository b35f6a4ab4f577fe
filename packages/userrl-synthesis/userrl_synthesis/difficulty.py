"""Tasks of medium difficulty (TARL 3.1): those that a served model sometimes passes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from userrl_core.errors import ConfigError
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes
from userrl_core.served.client import ChatServer


@dataclass(frozen=True, slots=True)
class Filtered:
    """Tasks that a model sometimes passes. played: number of played tasks. unscored: number of those without a score."""

    tasks: tuple[Task, ...]
    played: int
    unscored: int


def filter_by_difficulty(
    tasks: Sequence[Task], server: ChatServer, *, attempts: int, min_rate: float, max_rate: float, horizon: int
) -> Filtered:
    """Keep the tasks whose pass rate is within the bounds. Raises ConfigError if there is no task, or no score."""
    if not tasks:
        raise ConfigError("task.none_left", "The file of tasks is empty. Give one with at least one task.")
    played = asyncio.run(run_episodes(tasks, OpenAIPolicy(server), horizon=horizon, n=attempts))
    passes: dict[str, list[bool]] = {}
    for trajectory in played:
        if trajectory.admitted:
            passes.setdefault(trajectory.task.key, []).append(trajectory.stop_reason == "success")
    if not passes:
        why = next((t.reject_reason for t in played if t.reject_reason), "no reason was given")
        raise ConfigError("run.no_conversations", f"None of the {len(played):,} conversations could be scored ({why}).")
    rates = {key: sum(passed) / len(passed) for key, passed in passes.items()}
    medium_tasks = [task for task in tasks if task.key in rates and min_rate <= rates[task.key] <= max_rate]
    return Filtered(tuple(medium_tasks), len(tasks), len(tasks) - len(rates))
