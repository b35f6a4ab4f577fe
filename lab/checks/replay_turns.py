"""Deterministic replay, counted: the same prefix leads to the same state, over every installed gym.

    python -m lab.checks.replay_turns               10,000 turns; exit status 1 where one comes out otherwise
    python -m lab.checks.replay_turns --turns 1000 --skip webshop

Demonstrators play. Each conversation is replayed in a new gym up to a random turn, and then continued with the same
messages. Observations, rewards, other output of the gym, the ending and the score must be the same.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence

from analysis.credit.replay import Setting, replay
from userrl_core.errors import GymError
from userrl_core.gyms.registry import gym_class, names, tasks, unavailable
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import PolicyReply, Trajectory
from userrl_core.rollout import run_episodes

AT_ONCE = 8
"""Conversations of a gym between two checks of the count."""


async def differs(stored: Trajectory) -> str:
    """Say where a conversation differs; "" if it does not."""
    prefix_turns = random.Random(stored.seed).randrange(len(stored.turns))
    try:
        episode = await replay(stored, prefix_turns, Setting())
    except GymError as error:
        return str(error)
    try:
        for turn in stored.turns[prefix_turns:]:
            await episode.submit(PolicyReply(text=turn.message))
            again = episode.trajectory.turns[-1]
            if (again.observation, again.reward, again.info) != (turn.observation, turn.reward, turn.info):
                return (
                    f"turn {turn.number} of {stored.task.key} comes out otherwise after {prefix_turns} replayed turns"
                )
    finally:
        await episode.gym.aclose()
    if (episode.trajectory.stop_reason, episode.trajectory.score) != (stored.stop_reason, stored.score):
        return f"{stored.task.key} ends otherwise after {prefix_turns} replayed turns"
    return ""


async def count(min_turns: int, skipped: Sequence[str]) -> int:
    """Print turns by gym, and return the number of conversations that differ."""
    turns: Counter[str] = Counter()
    wrong: list[str] = []
    gyms = []
    for name in names():
        left_out = "left out" if name in skipped else ""
        if why := gym_class(name).irreproducible or unavailable(name) or left_out:
            print(f"{name}: not replayed ({why})")
        else:
            gyms.append(name)
    rounds = 0
    while sum(turns.values()) < min_turns:
        rounds += 1
        for name in gyms if rounds == 1 else [name for name in gyms if not gym_class(name).slow]:
            chosen = random.Random(rounds).sample(list(tasks(name, "train")), AT_ONCE)
            for stored in await run_episodes(chosen, ScriptedPolicy(0.6), horizon=16, seed=rounds):
                turns[name] += len(stored.turns)
                wrong += filter(None, [await differs(stored)])
        print(f"{sum(turns.values()):,} turns, {len(wrong)} differ", flush=True)
    for name, number in sorted(turns.items()):
        print(f"{name}: {number:,} turns")
    for sentence in wrong:
        print(sentence)
    return len(wrong)


def main() -> None:
    """Return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--skip", nargs="*", default=[], metavar="GYM")
    arguments = parser.parse_args()
    sys.exit(1 if asyncio.run(count(arguments.turns, arguments.skip)) else 0)


if __name__ == "__main__":
    main()
