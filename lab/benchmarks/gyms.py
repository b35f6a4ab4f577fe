"""Speed of the gyms: steps per second, loading of task sets, creation of environments. Prints a table and asserts nothing.

    python -m lab.benchmarks.gyms [--published DIR]

One process, one core. Times are processor seconds, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from userrl_core import gyms
from userrl_core.errors import TaskError
from userrl_core.gyms.registry import names, part
from userrl_core.interact import InteractCall
from userrl_core.records import Task

STEPS = 200_000


def processor_seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


async def function_steps() -> float:
    gym = gyms.make("function", gyms.tasks("function", "train")[0])
    gym.reset(seed=0)
    calls = [InteractCall("action", f"{n} {n + 1} 2 11") for n in range(1, 9)]
    began = time.process_time()
    for _ in range(STEPS // len(calls)):
        for call in calls:
            await gym.step(call)
    return STEPS / (time.process_time() - began)


def creation(tasks: list[Task]) -> float:
    """Return milliseconds per environment, including reset."""
    return 1e3 * processor_seconds(lambda: [gyms.make(t.gym, t).reset(seed=0) for t in tasks]) / len(tasks)


def imported(name: str, root: Path) -> str:
    """Return the number of published tasks and the seconds to read them, as two columns."""
    began = time.process_time()
    try:
        count = len(gyms.load_published(name, root))
    except TaskError:
        return f"{'elsewhere':>11}"
    return f"{count:>11}{time.process_time() - began:>9.3f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--published", type=Path, help="root of a copy of the released repository")
    published = parser.parse_args().published
    print(f"function: {asyncio.run(function_steps()):,.0f} steps/s\n")
    print(f"{'gym':<12}{'tasks':>8}{'load s':>9}{'create ms':>11}{'published':>11}{'load s':>9}")
    for name in names():
        module = part(name, "tasks")
        load = processor_seconds(lambda name=name: [gyms.tasks(name, s) for s in ("train", "validation", "test")])
        own = gyms.tasks(name, "train")
        total = sum(len(gyms.tasks(name, s)) for s in ("train", "validation", "test"))
        some = list(own[:200])
        creation(some[:2])
        line = f"{name:<12}{total:>8}{load:>9.3f}{creation(some):>11.3f}"
        if published is not None and hasattr(module, "load_published"):
            line += imported(name, published)
        print(line)


if __name__ == "__main__":
    main()
