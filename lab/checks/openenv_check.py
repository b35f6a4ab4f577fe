"""A check that OpenEnv's own client can play our gyms, with the same results as in process.

    python -m lab.checks.openenv_check [GYM ...] [--venv .venv-openenv] [--episodes 3] [--record]

Creates an environment with openenv-core (whose packages conflict with ours), and serves each gym with ``userrl
serve-gym``. The gym `openenv` plays it through the package's ``GenericEnvClient``, with the scripted demonstrator's messages.
Exits with 1 if an observation, a reward or an end differs. A gym that this machine cannot play is named and skipped. --record
writes the rewards into data/environments/openenv.csv.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from pathlib import Path
from typing import Any

from lab.checks.served_gym import served_gym
from lab.environments import python_with
from lab.rows import DATA, add_rows
from userrl_core.gyms import make, tasks
from userrl_core.gyms.registry import demonstrator_class, gym_class, names, unavailable
from userrl_core.interact import InteractCall, render_call
from userrl_core.records import Task
from userrl_gym_openenv.gym import PYTHON

PACKAGE = "openenv-core==0.3.0"
TURNS = 8
RECORD = DATA / "environments" / "openenv.csv"


def main() -> int:
    """Print a line for each gym."""
    parser = argparse.ArgumentParser(description="OpenEnv's client plays our gyms.")
    parser.add_argument("gyms", nargs="*")
    parser.add_argument("--venv", type=Path, default=Path(".venv-openenv"))
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    os.environ[PYTHON], wrong = str(python_with(arguments.venv, PACKAGE).absolute()), 0
    for gym in arguments.gyms or names():
        if sentence := unavailable(gym) or ("It plays on a server itself." if gym_class(gym).elsewhere else ""):
            print(f"{gym}: left out. {sentence}", flush=True)
            continue
        played = [asyncio.run(in_process(gym, task)) for task in list(tasks(gym, "test"))[: arguments.episodes]]
        client_replies = asyncio.run(over_openenv(gym, [messages for messages, _ in played]))
        expected = [replies for _, replies in played]
        wrong += client_replies != expected
        for number, (replies, own_replies) in enumerate(
            zip(client_replies, expected, strict=True) if arguments.record else ()
        ):
            row = {"version": PACKAGE.rpartition("=")[2], "gym": gym, "episode": number, "turns": len(replies) - 1}
            rewards = {"rewards": rewards_of(replies), "own_rewards": rewards_of(own_replies)}
            add_rows(RECORD, ("version", "gym", "episode"), row | rewards)
        turns = sum(len(messages) for messages, _ in played)
        verdict = "the same" if client_replies == expected else "DIFFERENT"
        print(f"{gym}: {len(played)} episodes, {turns} turns, {verdict}", flush=True)
    return int(wrong > 0)


def rewards_of(replies: list[list[Any]]) -> str:
    """Return the rewards of an episode's turns, for a cell."""
    return " ".join(str(reward) for _, reward, _ in replies[1:])


async def in_process(name: str, task: Task) -> tuple[list[str], list[list[Any]]]:
    """Return the demonstrator's messages and the replies: text, reward, done. The opening comes first."""
    gym = make(name, task)
    observation = await asyncio.to_thread(gym.reset, 3)
    guide = demonstrator_class(name)(task, random.Random(1), 0.7, gym.config)
    messages: list[str] = []
    replies: list[list[Any]] = [[observation, None, False]]
    while not gym.done and gym.turns < TURNS:
        call = guide.act(observation)
        result = await gym.step(call)
        observation = result.observation
        messages.append(render_call(call))
        replies.append([observation, result.reward, result.terminated])
    await gym.aclose()
    return messages, replies


async def over_openenv(gym: str, messages: list[list[str]]) -> list[list[list[Any]]]:
    """Play the same messages on a server of the gym, through the gym `openenv`."""
    episodes = []
    with served_gym(gym) as address:
        for number, script in enumerate(messages):
            task = Task("openenv", f"{gym}_{number}", "test", {"reset": {"data_idx": number, "seed": 3}}, tier=gym)
            remote = make("openenv", task, servers=(address,), text="text")
            replies: list[list[Any]] = [[await asyncio.to_thread(remote.reset, 3), None, False]]
            for message in script:
                result = await remote.step(InteractCall("action", message))
                replies.append([result.observation, result.reward, result.terminated])
            await remote.aclose()
            episodes.append(replies)
    return episodes


if __name__ == "__main__":
    raise SystemExit(main())
