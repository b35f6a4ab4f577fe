"""Many episodes at once: concurrency limits, time-outs per episode, progress. One bad rollout never stops the others."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from userrl_core.episode import Episode, EpisodeRules
from userrl_core.errors import ConfigError, PolicyError
from userrl_core.gyms.base import Gym
from userrl_core.gyms.prompt import PromptStyle
from userrl_core.gyms.registry import make
from userrl_core.policies.base import BatchPolicy, Policy
from userrl_core.records import Task, Trajectory, Where
from userrl_core.seeding import derive_seed
from userrl_core.sink import Sink

Progress = Callable[[Trajectory], None]


async def run_episodes(
    tasks: Sequence[Task],
    policy: Policy | BatchPolicy,
    *,
    horizon: int,
    n: int = 1,
    concurrency: int = 64,
    sink: Sink | None = None,
    user: Any = "rule",
    where: Where | None = None,
    seed: int = 0,
    gym_config: Mapping[str, Mapping[str, Any]] | None = None,
    on_format_error: Literal["end", "continue"] = "end",
    prompt_style: PromptStyle = "full",
    step_timeout: float = 120.0,
    episode_timeout: float = 1800.0,
    progress: Progress | None = None,
) -> list[Trajectory]:
    """Play every task n times; returns n trajectories a task, in the order of the tasks.

    user: a user kind, ``(kind, options)`` or, per gym, a mapping of those. gym_config: options per gym. seed: with the
    task's key, the step and the attempt it fixes every random draw, so the order of execution changes nothing.
    concurrency: conversations in flight at once. progress: called once per finished trajectory.
    Raises ConfigError for bad arguments and LogError when the sink cannot write; nothing else ends the batch.
    """
    if n < 1:
        raise ConfigError(f"n is the number of attempts per task; {n} gives none.")
    if concurrency < 1:
        raise ConfigError(f"concurrency {concurrency} would never start a conversation; give 1 or more.")
    rules = EpisodeRules(horizon, on_format_error, step_timeout, prompt_style)
    episodes = build_episodes(tasks, rules, n=n, sink=sink, user=user, where=where, seed=seed, gym_config=gym_config)
    if isinstance(policy, BatchPolicy):
        await policy.play(episodes)
        for episode in episodes:
            await _close(episode.gym)
            if progress is not None:
                progress(episode.trajectory)
        return [episode.trajectory for episode in episodes]
    limit = asyncio.Semaphore(concurrency)

    async def run(episode: Episode) -> Trajectory:
        async with limit:
            await drive(episode, policy, episode_timeout)
        if progress is not None:
            progress(episode.trajectory)
        return episode.trajectory

    # A task group, not gather: when the log fails, every other conversation is cancelled at once instead of played unseen.
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(run(episode)) for episode in episodes]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in running]


def build_episodes(
    tasks: Sequence[Task],
    rules: EpisodeRules,
    *,
    n: int = 1,
    sink: Sink | None = None,
    user: Any = "rule",
    where: Where | None = None,
    seed: int = 0,
    gym_config: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Episode]:
    """n fresh episodes a task, grouped by task, not started."""
    return [
        build_episode(task, attempt, rules, sink=sink, user=user, where=where, seed=seed, gym_config=gym_config)
        for task in tasks
        for attempt in range(n)
    ]


def build_episode(
    task: Task,
    attempt: int,
    rules: EpisodeRules,
    *,
    sink: Sink | None = None,
    user: Any = "rule",
    where: Where | None = None,
    seed: int = 0,
    gym_config: Mapping[str, Mapping[str, Any]] | None = None,
) -> Episode:
    """One fresh episode, not started. Every random draw follows from seed, phase, step, task and attempt."""
    place = where or Where()
    whose = user.get(task.gym, "rule") if isinstance(user, Mapping) else user
    return Episode(
        make(task.gym, task, whose, **(gym_config or {}).get(task.gym, {})),
        rules,
        attempt=attempt,
        seed=derive_seed(seed, place.phase, place.step, task.key, attempt),
        where=place,
        group=_group(place, task),
        user=_user_name(whose),
        sink=sink,
    )


async def drive(episode: Episode, policy: Policy, timeout: float) -> None:
    """Play one episode to its end with a policy of one conversation at a time."""
    session = None
    try:
        async with asyncio.timeout(timeout):
            messages = episode.start()
            while messages:
                began = time.perf_counter()
                try:
                    if session is None:
                        session = policy.session(episode.gym, derive_seed("policy", episode.trajectory.seed))
                    reply = await session.act(messages)
                except Exception as error:  # noqa: BLE001  PolicyError or a policy's bug: data about one rollout
                    episode.fail(error)
                    return
                messages = await episode.submit(reply, time.perf_counter() - began)
    except TimeoutError:
        episode.fail(PolicyError(f"the conversation took longer than {timeout:g} s"))
    finally:
        await _close(episode.gym)


async def _close(gym: Gym[Any]) -> None:
    """Release a gym. What goes wrong here is said aloud and spoils nothing: the conversation is recorded already."""
    try:
        await gym.aclose()
    except Exception as error:  # noqa: BLE001  as everywhere in a rollout
        warnings.warn(f"A {gym.name} gym did not close: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)


def _group(place: Where, task: Task) -> str:
    """The attempts that are compared with each other: one task in one step, and in an evaluation one actor."""
    # A demonstrator and a cold start are both evaluated at step 0; their attempts are no group.
    actor = (place.policy, place.checkpoint) if place.phase == "evaluate" else ()
    return "/".join([place.stage, str(place.step), *filter(None, actor), task.key])


def _user_name(user: Any) -> str:
    if isinstance(user, str):
        return user
    if isinstance(user, tuple):
        return str(user[1].get("model", user[0]))
    return type(user).__name__
