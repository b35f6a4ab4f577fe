"""The cost of a log call, and the share of its line's checksum: CPU per turn for three line formats, in alternation.

    python -m lab.benchmarks.log_call

One writer logs the same 500 turns (about 1.1 kB per line) in rounds of each format, so that other work slows all alike.
XXH3 is included for comparison if xxhash is installed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable

from userrl_core.records import RolloutContext, Task, Trajectory, Turn
from warehouse.write import turn_log
from warehouse.write.turn_log import TurnLog

TURNS = 500


def forms() -> dict[str, Callable[[bytes], bytes]]:
    made: dict[str, Callable[[bytes], bytes]] = {
        "no checksum": lambda members: members + b"}",
        "CRC-32": turn_log.stamped,
    }
    try:
        import xxhash
    except ImportError:
        return made
    return made | {"XXH3": lambda members: b'%b,"crc":"%016x"}' % (members, xxhash.xxh3_64_intdigest(members))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2000)]

    def text(count: int) -> str:
        return " ".join(draw.choices(words, k=count))

    turns = [
        Turn(n, "action", text(12), text(24), text(50), text(36), 0.5, 0, 900, 60, 0.4, 0.2)
        for n in range(1, TURNS + 1)
    ]
    took: dict[str, list[float]] = {name: [] for name in forms()}
    with tempfile.TemporaryDirectory() as folder, TurnLog.open(folder, "r1") as log:
        played = Trajectory(Task("tau", "t", "train", {}), 0, 16, 1, RolloutContext("rl-1", 1, "train", "model"), "g")
        log.begin(played)
        for _ in range(arguments.rounds):
            for name, form in forms().items():
                turn_log.stamped, kept = form, turn_log.stamped
                began = time.thread_time()
                for turn in turns:
                    log.turn(played, turn)
                took[name].append((time.thread_time() - began) / TURNS * 1e6)
                turn_log.stamped = kept
    for name, times in took.items():
        print(f"{name:12} least {min(times):.2f} us, median {statistics.median(times):.2f} us")


if __name__ == "__main__":
    main()
