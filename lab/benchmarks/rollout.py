"""Speed of the rollout engine: turns per second with full logging, efficiency under latency, the turn log's share.

    python -m lab.benchmarks.rollout [--episodes 512] [--turns 8]

Each of our numbers is printed with another engine's number or a limit. Efficiency is (sum of latencies / concurrency) /
wall time. It is 1 if the engine adds nothing to the model's waiting time. No engine reaches 1, because some slots are idle
at the end. The list-scheduling bound is the result for the same conversations in the same order, if every slot takes the
next one at once and nothing else takes time. The other engines were measured on two CPU cores.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from userrl_core.gyms import tasks
from userrl_core.interact import InteractCall, render_call
from userrl_core.policies import PolicyReply
from userrl_core.records import Message, Trajectory, Turn
from userrl_core.rollout import run_episodes
from warehouse.write.turn_log import TurnLog


class AskingPolicy:
    """A policy that asks the function gym for a value in every turn, after a log-normal wait (given median, sigma 0.5)."""

    name = "asking"

    def __init__(self, median: float = 0.0) -> None:
        self.median = median
        self.waited = 0.0

        self.conversations: list[float] = []
        """Seconds waited in each conversation, in starting order."""

    def session(self, gym: Any, seed: int) -> AskingPolicy._Session:
        self.conversations.append(0.0)
        return AskingPolicy._Session(self, random.Random(seed), gym, len(self.conversations) - 1)

    class _Session:
        def __init__(self, policy: AskingPolicy, rng: random.Random, gym: Any, number: int) -> None:
            self.policy, self.rng, self.number = policy, rng, number
            self.gold = iter(type(gym).gold(gym.task, gym.config)) if gym.name != "function" else None

        async def act(self, new: Sequence[Message]) -> PolicyReply:
            if self.policy.median:
                wait = self.policy.median * math.exp(self.rng.gauss(0, 0.5))
                self.policy.waited += wait
                self.policy.conversations[self.number] += wait
                await asyncio.sleep(wait)
            if self.gold is not None:  # the solution of the other gyms, which take 3 to 18 turns
                return PolicyReply(render_call(next(self.gold), "Let me look at one more value."))
            content = " ".join(str(self.rng.randint(20, 99)) for _ in range(4))
            return PolicyReply(render_call(InteractCall("action", content), "Let me look at one more value."))


class TimedLog:
    """A turn log that sums the seconds spent in its calls during a rollout, and counts the turns."""

    def __init__(self, log: TurnLog) -> None:
        self.log, self.seconds, self.turns = log, 0.0, 0
        self.begin, self.tasks, self.end = self._timed(log.begin), self._timed(log.tasks), self._timed(log.end)
        self._turn = self._timed(log.turn)

    def turn(self, trajectory: Trajectory, turn: Turn) -> None:
        self._turn(trajectory, turn)
        self.turns += 1

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = call(*arguments)
            self.seconds += time.perf_counter() - began
            return result

        return timed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


def measure(
    episodes: int, turns: int, *, median: float, concurrency: int, folder: Path | None, mixed: bool = False
) -> tuple[float, AskingPolicy, TimedLog | None]:
    """Return wall seconds, the mock model with its waiting times, and the timed log (None without a folder).

    mixed: use gyms of different lengths in sequence, instead of one gym with equal lengths.
    """
    problems = (list(tasks("function", "train")) * (episodes // 50 + 1))[:episodes]
    if mixed:
        third = episodes // 3
        chains = list(tasks("errand", "train"))
        problems = [*list(tasks("wish", "train"))[:third], *problems[:third], *chains[-third:]]
    policy = AskingPolicy(median)
    log = TimedLog(TurnLog.open(folder, "benchmark")) if folder is not None else None
    began = time.perf_counter()
    if log is not None:
        log.tasks(problems)  # as a trainer does before it plays a batch
    played = asyncio.run(
        run_episodes(problems, policy, horizon=20 if mixed else turns, concurrency=concurrency, sink=log)
    )
    wall = time.perf_counter() - began
    if log is not None:
        log.close()
    assert mixed or sum(len(t.turns) for t in played) == episodes * turns
    return wall, policy, log


def list_scheduled(seconds: Sequence[float], slots: int) -> float:
    """Return the end time of the last job, if each starts on the first free slot in this order."""
    free = [0.0] * slots
    for job in seconds:
        heapq.heapreplace(free, free[0] + job)
    return max(free)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--turns", type=int, default=8)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    count = arguments.episodes * arguments.turns
    try:
        measure(64, 8, median=0, concurrency=64, folder=None)  # imports and caches
        bare, _, _ = measure(arguments.episodes, arguments.turns, median=0, concurrency=64, folder=None)
        wall, _, log = measure(arguments.episodes, arguments.turns, median=0, concurrency=64, folder=folder / "a")
        assert log is not None
        print("| what | ours | peer or limit |\n| --- | --- | --- |")
        print(f"| turns/s, zero-latency model, nothing logged | {count / bare:,.0f} | verifiers 953 |")
        print(f"| turns/s, zero-latency model, every turn logged | {count / wall:,.0f} | Inspect 140 |")
        print(f"| log call, us a turn | {1e6 * log.seconds / log.turns:.1f} | 10 |")
        for median, concurrency, peer in ((0.05, 64, 0.72), (0.2, 128, 0.66)):
            for mixed in (False, True):
                wall, policy, log = measure(
                    arguments.episodes,
                    arguments.turns,
                    median=median,
                    concurrency=concurrency,
                    folder=folder / f"{median}-{mixed}",
                    mixed=mixed,
                )
                assert log is not None
                label = (
                    f"{1000 * median:.0f} ms log-normal, concurrency {concurrency}{', gyms of 3 to 18 turns' * mixed}"
                )
                bound = list_scheduled(policy.conversations, concurrency)
                ideal = policy.waited / concurrency
                peer_note = "" if mixed else f"; verifiers {peer}"
                print(f"| efficiency, {label} | {ideal / wall:.2f} | list scheduling {ideal / bound:.2f}{peer_note} |")
                print(f"| of the list-scheduling bound, {label} | {100 * bound / wall:.1f} % | 97 % |")
                print(f"| log's share of rollout time, {label} | {100 * log.seconds / wall:.2f} % | 2 % |")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
