"""Many episodes at once: concurrency limit, time-out per episode, progress. A failed rollout never stops the others."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from userrl_core.episode import GYM_FAULTS, Episode, EpisodeRules, Verifier, is_cancellation
from userrl_core.errors import ConfigError, LogError, PolicyError, in_one_line
from userrl_core.gyms.base import Gym
from userrl_core.gyms.prompt import EpisodeStyle
from userrl_core.gyms.registry import make
from userrl_core.judging.alongside import Alongside
from userrl_core.judging.judge import TurnJudge
from userrl_core.policies.base import BatchPolicy, Policy, Session
from userrl_core.records import ModelCall, RolloutContext, Task, Trajectory
from userrl_core.seeding import derive_seed
from userrl_core.served.health import turn_seconds
from userrl_core.sink import Sink
from userrl_core.waiting import WaitingEpisodes

Progress = Callable[[Trajectory], None]


async def run_episodes(
    tasks: Sequence[Task],
    policy: Policy | BatchPolicy,
    *,
    horizon: int | Sequence[int],
    n: int | Mapping[str, int] = 1,
    concurrency: int = 64,
    sink: Sink | None = None,
    user: Any = "rule",
    context: RolloutContext | None = None,
    seed: int = 0,
    gym_config: Mapping[str, Mapping[str, Any]] | None = None,
    on_format_error: Literal["end", "continue"] = "end",
    prompt_style: EpisodeStyle = "full",
    turns_left: bool = False,
    step_timeout: float | None = None,
    episode_timeout: float | None = None,
    progress: Progress | None = None,
    skip: Collection[tuple[str, int]] = (),
    judge: TurnJudge | None = None,
    verifier: Verifier | None = None,
) -> list[Trajectory]:
    """Play every task n times. Return n trajectories per task, in the order of the tasks.

    horizon: for every task, or one per task. n: for every task, or by gym. user: a user kind, ``(kind, options)``, or a
    mapping of those by gym. gym_config: options by gym. seed: of every random draw. concurrency: episodes in
    flight at once. progress: called once per finished trajectory. skip: task keys with attempts (from 0) that were played
    before and are left out. judge: judges every trajectory once it ends, while others are played. verifier: checks every step
    before it is executed. step_timeout: maximum seconds of gym and user for one turn; None: `served.health.turn_seconds` of
    the users. episode_timeout: maximum seconds of a conversation; None: those of 15 turns, of users and a served
    agent. turns_left: the agent is shown how many turns it has left.

    Raises ConfigError for bad arguments and LogError when the sink cannot write; nothing else ends the batch.
    """
    fewest = min(n.values(), default=1) if isinstance(n, Mapping) else n
    if fewest < 1:
        raise ConfigError(
            "argument.out_of_range", f"n is the number of trajectories per task. Give 1 or more, not {fewest}."
        )
    if concurrency < 1:
        raise ConfigError("argument.out_of_range", f"concurrency {concurrency} would start no episode. Give 1 or more.")
    if episode_timeout is None:
        episode_timeout = 15 * turn_seconds(user, getattr(policy, "server", None))
    horizons = [horizon] * len(tasks) if isinstance(horizon, int) else horizon
    # Made before any episode, so that an impossible horizon is refused before a conversation begins.
    seconds = turn_seconds(user) if step_timeout is None else step_timeout
    rules = {turns: EpisodeRules(turns, on_format_error, seconds, prompt_style, turns_left) for turns in horizons}
    episodes = [
        build_episode(
            task, attempt, rules[turns], sink=sink, user=user, context=context, seed=seed, gym_config=gym_config
        )
        for task, turns in zip(tasks, horizons, strict=True)
        for attempt in range(n[task.gym] if isinstance(n, Mapping) else n)
        if (task.key, attempt) not in skip
    ]
    for episode in episodes:
        episode.on_end, episode.verifier = progress, verifier
    if judge is None:
        await _play(episodes, policy, concurrency, episode_timeout)
    else:
        async with Alongside(judge, sink) as judging:
            for episode in episodes:
                episode.on_end = _both(judging.submit, progress)
            await _play(episodes, policy, concurrency, episode_timeout)
    return [episode.trajectory for episode in episodes]


def _both(first: Progress, then: Progress | None) -> Progress:
    def call(trajectory: Trajectory) -> None:
        first(trajectory)
        if then is not None:
            then(trajectory)

    return call


async def _play(
    episodes: Sequence[Episode], policy: Policy | BatchPolicy, concurrency: int, episode_timeout: float
) -> None:
    if isinstance(policy, BatchPolicy):
        # A torch model plays all conversations in lock-step. A served one answers each as it comes.
        await policy.play(episodes)
        for episode in episodes:
            await _close(episode.gym)
        return
    # The episodes with the longest expected duration start first, so that none of them is the last to end.
    waiting = WaitingEpisodes(episodes, max((episode.rules.horizon for episode in episodes), default=1))

    async def slot() -> None:
        while (episode := waiting.next()) is not None:
            await drive(episode, policy, episode_timeout)
            waiting.ended(episode)

    # A task group, not gather: when the log fails, the other episodes are cancelled at once instead of played unlogged.
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(episodes))):
                group.create_task(slot())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def build_episode(
    task: Task,
    attempt: int,
    rules: EpisodeRules,
    *,
    sink: Sink | None = None,
    user: Any = "rule",
    context: RolloutContext | None = None,
    seed: int = 0,
    gym_config: Mapping[str, Mapping[str, Any]] | None = None,
) -> Episode:
    """Create one new episode, not started."""
    context = context or RolloutContext()
    gym_user = user.get(task.gym, "rule") if isinstance(user, Mapping) else user
    return Episode(
        make(task.gym, task, gym_user, **(gym_config or {}).get(task.gym, {})),
        rules,
        attempt=attempt,
        # Every random draw follows from these, so the order in which episodes are played changes none.
        seed=derive_seed(seed, context.phase, context.step, task.key, attempt),
        context=context,
        group=_group(context, task),
        user=user_name(gym_user),
        sink=sink,
    )


async def drive(episode: Episode, policy: Policy, timeout: float) -> None:
    """Play one episode to its end with a policy that plays one conversation per session."""
    session = None
    try:
        async with asyncio.timeout(timeout):
            messages = await episode.begin()
            while messages:
                started = time.perf_counter()
                try:
                    if session is None:
                        session = policy.session(episode.gym, derive_seed("policy", episode.trajectory.seed))
                    reply = await session.act(messages)
                except Exception as error:  # noqa: BLE001  PolicyError or a bug in a policy fails one rollout
                    episode.fail(error, _open_calls(session))
                    return
                messages = await episode.submit(reply, time.perf_counter() - started)
    except TimeoutError:
        episode.fail(
            PolicyError("policy.no_reply", f"the conversation took longer than {timeout:g} s"), _open_calls(session)
        )
    except asyncio.CancelledError:  # what was asked so far was paid for
        with suppress(LogError):  # the log may be why all are cancelled
            episode.fail(PolicyError("policy.no_reply", "the conversation was cancelled"), _open_calls(session))
        raise
    finally:
        await _close(episode.gym)


def _open_calls(session: Session | None) -> Sequence[ModelCall]:
    """Return the served model's calls for a missing reply; empty for local models."""
    calls: Sequence[ModelCall] = getattr(session, "open_calls", ())
    return calls


async def _close(gym: Gym[Any]) -> None:
    """Release a gym. An error here is only a warning, because the trajectory is already logged."""
    try:
        await gym.aclose()
    except GYM_FAULTS as error:
        if is_cancellation(error):
            raise
        warnings.warn(f"A {gym.name} gym did not close: {in_one_line(error)}", RuntimeWarning, stacklevel=2)


def _group(context: RolloutContext, task: Task) -> str:
    """Return the id of trajectories that are compared with each other: one task, one step and, in an evaluation, one actor."""
    # The demonstrator and the cold start are both evaluated at step 0 and must not share a group.
    actor = (context.policy, context.checkpoint) if context.phase == "evaluate" else ()
    return "/".join([context.stage, str(context.step), *filter(None, actor), task.key])


def user_name(user: Any) -> str:
    """Return a user's name in the log: its kind, or the model's name."""
    if isinstance(user, str):
        return user
    if isinstance(user, tuple):
        return str(user[1].get("model", user[0]))
    return type(user).__name__
