"""Leaks after 1,000 episodes: no thread, no session, and memory within 10 % of that after 100 (AgentGym-RL 3.2.3).

    python -m lab.checks.leaks [GYM ...] [--episodes 1000]

Each available gym runs in its own process, with its scripted demonstrator at half its skill, on the first test tasks in
turn. Exits with 1 if something leaks. `agentgym` is measured by
``test_a_thousand_episodes_leave_no_session_no_thread_and_no_memory``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import threading
import time

import psutil

from userrl_core.gyms import tasks
from userrl_core.gyms.registry import names, unavailable
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.records import Task
from userrl_core.rollout import run_episodes

FIRST, TOLERATED = 100, 0.1
HORIZON = {"sciworld": 3, "webshop": 3}
"""Turns of the gyms with slow turns. All others have 16."""
TASKS = 40


def main() -> int:
    """Print a row for each gym."""
    parser = argparse.ArgumentParser(description="What many episodes leave behind.")
    parser.add_argument("gyms", nargs="*")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.episodes)))
        return 0
    print(
        "| gym | MB after 100 | at the end | children, after 100 | at the end | threads | at the end | sessions | seconds |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    leaks = 0
    for gym in arguments.gyms or [gym for gym in names() if gym != "agentgym" and not unavailable(gym)]:
        command = [sys.executable, "-m", "lab.checks.leaks", "--child", gym, "--episodes", str(arguments.episodes)]
        row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])
        (mb, child_mb, threads), (last_mb, last_child_mb, last_threads) = row["first"], row["end"]
        more = last_mb > (1 + TOLERATED) * mb or last_child_mb > (1 + TOLERATED) * child_mb
        grown = more or last_threads > threads or row["sessions"] > 0
        leaks += grown
        cells = [gym, *(f"{value:.0f}" for value in (mb, last_mb, child_mb, last_child_mb)), threads, last_threads]
        cells += [row["sessions"], f"{row['seconds']:.0f}"]
        print("| " + " | ".join(map(str, cells)) + (" | over |" if grown else " |"), flush=True)
    return int(leaks > 0)


def measure(gym: str, episodes: int) -> dict[str, object]:
    """Return memory and threads after the first episodes and after all, and the number of open sessions."""
    began, pool = time.monotonic(), list(tasks(gym, "test"))[:TASKS]
    play(gym, pool, FIRST)
    first = held()
    for _ in range(FIRST, episodes, FIRST):  # not all at once: it is gyms that are measured, not a list of trajectories
        play(gym, pool, FIRST)
    return {"first": first, "end": held(), "sessions": open_sessions(gym), "seconds": time.monotonic() - began}


def play(gym: str, pool: list[Task], count: int) -> None:
    """Play this many episodes, eight in parallel."""
    wanted = [pool[number % len(pool)] for number in range(count)]
    played = asyncio.run(run_episodes(wanted, ScriptedPolicy(0.5), horizon=HORIZON.get(gym, 16), concurrency=8))
    rejected = [trajectory.reject_reason for trajectory in played if not trajectory.admitted]
    if rejected:
        sys.exit(f"{len(rejected)} of {count} episodes of {gym} could not be scored: {rejected[0]}")


def held() -> tuple[float, float, int]:
    """Return the memory of this process and its children (SciWorld's Java, the shop's Chromium) in MB, and its threads."""
    gc.collect()
    process = psutil.Process()
    children = sum(child.memory_full_info().pss for child in process.children(recursive=True))
    return process.memory_info().rss / 1e6, children / 1e6, threading.active_count()


def open_sessions(gym: str) -> int:
    """Return open resources of finished episodes: visitors of the shop, and browser contexts."""
    if gym != "webshop":
        return 0
    from userrl_gym_webshop.browser import browser
    from userrl_gym_webshop.site import site

    return len(site().visitors) + len(browser().call("Target.getBrowserContexts")["browserContextIds"])


if __name__ == "__main__":
    raise SystemExit(main())
