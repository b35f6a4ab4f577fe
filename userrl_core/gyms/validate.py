"""Proof that a task can be solved: its gold solution is played with the rule user and must reach the full metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from userrl_core.errors import TaskError, UserRLError
from userrl_core.gyms.base import Gym, GymConfig, parse_config
from userrl_core.gyms.registry import gym_class, make_user
from userrl_core.gyms.sync import complete
from userrl_core.interact import InteractCall
from userrl_core.records import Task


@dataclass(frozen=True, slots=True)
class Validation:
    """What playing a task's gold solution gave.

    ok: the full metric was reached. score: the metric, None when it was not played to a score. reason: empty when ok, else
    a sentence. playable: False for a task that no agent can play here (imported without its data).
    """

    ok: bool
    score: float | None
    reason: str
    playable: bool = True


def validate(task: Task, config: GymConfig | Mapping[str, Any] | None = None) -> Validation:
    """Play the task's gold solution with the rule user. Never raises for what is wrong with a task; says it instead."""
    return complete(validate_async(task, config))


async def validate_async(task: Task, config: GymConfig | Mapping[str, Any] | None = None) -> Validation:
    """The same from asynchronous code."""
    kind = gym_class(task.gym)
    settings = config if isinstance(config, GymConfig) else parse_config(kind, config or {})
    try:
        gym = kind(task, user=make_user(kind, task, "rule"), config=settings)
    except TaskError as error:
        return Validation(False, None, str(error), playable=False)
    solver = getattr(kind, "gold", None)
    if solver is None:
        return Validation(False, None, f"Gym '{task.gym}' knows no gold solution.")
    try:
        calls: list[InteractCall] = solver(task, settings)
        if not calls:
            return Validation(False, None, "The task has no gold solution, so that nothing proves it can be solved.")
        return await _play(gym, calls)
    except UserRLError as error:
        return Validation(False, None, str(error))
    except Exception as error:  # noqa: BLE001  one broken task must not end the check of thousands
        return Validation(False, None, f"The gym broke on the gold solution: {type(error).__name__}: {error}")
    finally:
        await gym.aclose()


async def _play(gym: Gym[Any], calls: list[InteractCall]) -> Validation:
    gym.reset(seed=0)
    for number, call in enumerate(calls, 1):
        result = await gym.step(call)
        if result.reward is None:
            return Validation(False, None, f"Turn {number} of the gold solution was not scored.")
        if result.terminated:
            break
    score = gym.score()
    if score is None or score < gym.full_score - 1e-9:
        return Validation(False, score, f"The gold solution reaches {score}, not {gym.full_score:g}.")
    return Validation(True, score, "")
