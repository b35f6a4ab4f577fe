"""``userrl play``: one conversation at the terminal, as the agent or as the user, with the turn rewards as they fall."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

from flows.cli.tasks import every_task
from flows.cli.terminal import plain, refusals
from userrl_core.episode import Episode, EpisodeRules
from userrl_core.errors import ConfigError, PolicyError
from userrl_core.gyms import gym_class, make, tasks
from userrl_core.gyms.human_user import Console
from userrl_core.policies.base import Policy
from userrl_core.policies.human import HumanPolicy
from userrl_core.policies.openai import OpenAIPolicy
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task, Trajectory, Turn
from userrl_core.seeding import derive_seed
from userrl_core.served.client import ChatServer, close_clients

PATIENCE = 86_400.0
"""Seconds: a person may think for as long as they like."""

Side = Literal["agent", "user"]


def play(
    gym: Annotated[str, typer.Argument(help="The gym, such as travel.")],
    as_side: Annotated[Side, typer.Option("--as", help="Whom you play.")] = "agent",
    task: Annotated[
        str | None,
        typer.Option("--task", help="The id (or its beginning) of a task, also an imported one; else one by the seed."),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="Where the task comes from.")] = "train",
    seed: Annotated[int, typer.Option("--seed", help="Chooses the task and every random draw.")] = 0,
    horizon: Annotated[int, typer.Option("--horizon", help="The most turns.")] = 16,
    model: Annotated[str | None, typer.Option("--model", help="A served model on the other side.")] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", help="The server's /v1 address.")] = None,
    skill: Annotated[float, typer.Option("--skill", help="The scripted agent's skill, without --model.")] = 0.7,
) -> None:
    """Play one task. The other side is by rule, or a served model with --model."""
    server = _server(model, base_url)
    try:
        with refusals("play"):
            chosen = pick(gym, task, split, seed)
            trajectory = converse(gym, as_side, chosen, seed=seed, horizon=horizon, server=server, skill=skill)
    except KeyboardInterrupt:
        typer.echo("\nStopped.")
        raise typer.Exit(130) from None
    typer.echo(f"\n{plain(ending(trajectory))}")
    other = "agent" if as_side == "user" else "user"
    typer.echo(
        f"Next: userrl play {gym} --seed {seed + 1}"
        + (f"   or: --as {other}" if "human" in gym_class(gym).users else "")
    )


def pick(gym: str, task_id: str | None, split: str, seed: int) -> Task:
    """The task with this id (or a beginning that only one has), else one drawn by the seed. Raises ConfigError."""
    if task_id is None:
        candidates = tasks(gym, split)
        if not candidates:
            raise ConfigError(f"Gym '{gym}' has no {split} tasks; try another --split.")
        return candidates[derive_seed("play", gym, seed) % len(candidates)]
    every = every_task(gym)
    matches = [task for task in every if task.id == task_id] or [task for task in every if task.id.startswith(task_id)]
    if len(matches) != 1:
        count = "no task" if not matches else f"{len(matches)} tasks"
        raise ConfigError(
            f"Gym '{gym}' has {count} with an id that begins with '{task_id}'; see userrl tasks list {gym}."
        )
    return matches[0]


def converse(
    gym: str,
    side: Side,
    task: Task,
    *,
    seed: int = 0,
    horizon: int = 16,
    server: dict[str, Any] | None = None,
    skill: float = 0.7,
    ask: Callable[[str], str] = input,
    show: Callable[[str], None] = typer.echo,
) -> Trajectory:
    """One conversation between a person and the other side.

    server: fields of `ChatServer` for the other side, None for rules. ask, show: like ``input`` and ``print``.
    Raises ConfigError when the gym has no user that a person could play, or the server has no key.
    """

    def safely(text: str) -> None:
        show(plain(text))  # a model's words never reach the terminal as escape sequences

    policy, user = _sides(gym, side, server, skill, lambda prompt: ask(plain(prompt)), safely)
    episode = Episode(
        make(gym, task, user),
        EpisodeRules(horizon, on_format_error="continue", step_timeout=PATIENCE),
        seed=derive_seed("play", seed),
        user=side if side == "user" else "openai" if server else "rule",
    )
    return asyncio.run(_run(episode, policy, side, safely))


def _sides(
    gym: str,
    side: Side,
    server: dict[str, Any] | None,
    skill: float,
    ask: Callable[[str], str],
    show: Callable[[str], None],
) -> tuple[Policy, Any]:
    if side == "agent":
        return HumanPolicy(ask, show), ("openai", server) if server else "rule"
    if "human" not in gym_class(gym).users:
        with_person = "turtle, telepathy, persuade and intention"
        raise ConfigError(f"Nobody can play the user of '{gym}'; its answers are computed. Possible: {with_person}.")
    person = ("human", {"console": Console(ask, show)})
    if server is None:
        return ScriptedPolicy(skill), person
    return OpenAIPolicy(ChatServer(**server)), person


async def _run(episode: Episode, policy: Policy, side: Side, show: Callable[[str], None]) -> Trajectory:
    trajectory = episode.trajectory
    messages = episode.start()
    if side == "user":
        show(
            "\n".join(f"[{message['role']}] {message['content']}" for message in messages if message["role"] == "user")
        )
    session = policy.session(episode.gym, derive_seed("policy", trajectory.seed))
    try:
        while messages:
            began = time.perf_counter()
            try:
                reply = await session.act(messages)
            except PolicyError as error:
                episode.fail(error)
                break
            messages = await episode.submit(reply, time.perf_counter() - began)
            show(_line(trajectory.turns[-1], trajectory, side, last=not messages))
    finally:
        await episode.gym.aclose()
        await close_clients()
    return trajectory


def _line(turn: Turn, trajectory: Trajectory, side: Side, *, last: bool) -> str:
    earned = "not scored" if turn.reward is None else f"{turn.reward:+.3f}"
    total = trajectory.return_sum
    observation = f"{turn.observation}\n" if turn.observation and (last or side == "user") else ""
    return f"{observation}-- turn {turn.number}: reward {earned}, so far {'-' if total is None else f'{total:.3f}'}"


def ending(trajectory: Trajectory) -> str:
    """How it ended, in a sentence."""
    if not trajectory.admitted:
        return f"Ended without a score ({trajectory.reject_reason})."
    how = {"success": "solved", "horizon": "out of turns", "gave_up": "ended unsolved"}.get(
        str(trajectory.stop_reason), str(trajectory.stop_reason)
    )
    turns = len(trajectory.turns)
    return f"{how.capitalize()} after {turns} turn{'' if turns == 1 else 's'}; score {trajectory.score:.3f}."


def _server(model: str | None, base_url: str | None) -> dict[str, Any] | None:
    if model is None and base_url is None:
        return None
    fields: dict[str, Any] = {"base_url": base_url}
    return {**fields, "model": model} if model else fields
