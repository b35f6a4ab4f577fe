"""Check that a task can be solved: its gold solution, executed with the rule user, must reach the full score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from userrl_core.errors import TaskError, UserRLError, in_one_line
from userrl_core.gyms.base import Gym, GymConfig, parse_config
from userrl_core.gyms.registry import gym_class, make_user
from userrl_core.gyms.sync import complete
from userrl_core.interact import InteractCall
from userrl_core.records import Task


@dataclass(frozen=True, slots=True)
class GoldValidation:
    """The result of a task's gold solution.

    ok: the full score was reached. score: the metric, None without a score. reason: empty when ok, else a sentence.
    playable: False for a task that cannot run on this machine (imported without its data).
    """

    ok: bool
    score: float | None
    reason: str
    playable: bool = True


def validate(task: Task, config: GymConfig | Mapping[str, Any] | None = None) -> GoldValidation:
    """Execute the task's gold solution with the rule user. A faulty task is reported in the result, never raised."""
    return complete(validate_async(task, config))


async def validate_async(task: Task, config: GymConfig | Mapping[str, Any] | None = None) -> GoldValidation:
    """Execute the gold solution as `validate` does, from asynchronous code."""
    gym_type = gym_class(task.gym)
    settings = config if isinstance(config, GymConfig) else parse_config(gym_type, config or {})
    try:
        gym = gym_type(task, user=make_user(gym_type, task, "rule"), config=settings)
    except TaskError as error:
        return GoldValidation(False, None, str(error), playable=False)
    gold = getattr(gym_type, "gold", None)
    if gold is None:
        return GoldValidation(
            False, None, f"Gym '{task.gym}' defines no gold solution. Give its class a method gold(task, config)."
        )
    try:
        calls: list[InteractCall] = gold(task, settings)
        if not calls:
            return GoldValidation(False, None, "The task has no gold solution, so it cannot be checked.")
        return await _play(gym, calls)
    except UserRLError as error:
        return GoldValidation(False, None, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  one broken task must not end the check of thousands
        return GoldValidation(False, None, f"The gym failed on the gold solution: {in_one_line(error)}")
    finally:
        await gym.aclose()


async def _play(gym: Gym[Any], calls: list[InteractCall]) -> GoldValidation:
    gym.reset(seed=0)
    scale, penalty = gym.config.reward_scale, gym.config.step_penalty
    low, high = sorted(bound * scale - penalty for bound in gym.reward_bounds(gym.config)[:2])
    for number, call in enumerate(calls, 1):
        result = await gym.step(call)
        if result.reward is None:
            return GoldValidation(False, None, f"Turn {number} of the gold solution was not scored.")
        if not low - 1e-9 <= result.reward <= high + 1e-9:  # rules of credit are chosen by these bounds
            reason = f"Turn {number} of the gold solution earned {result.reward:g}, outside of {low:g} to {high:g}."
            return GoldValidation(False, None, f"{reason} Correct the gym's reward_range.")
        if result.terminated:
            break
    score = gym.score()
    if score is None or score < gym.full_score - 1e-9:
        return GoldValidation(False, score, f"The gold solution reaches {score}, not {gym.full_score:g}.")
    return GoldValidation(True, score, "")


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
    except (Exception, SystemExit):  # noqa: BLE001  as in validate_async
        return False


def first_of_each_source(tasks: Sequence[Task], limit: int | None) -> list[Task]:
    """Return at most ``limit`` tasks of each source; None returns all tasks."""
    if limit is None:
        return list(tasks)
    sources = dict.fromkeys(task.source for task in tasks)
    return [task for source in sources for task in [t for t in tasks if t.source == source][:limit]]
