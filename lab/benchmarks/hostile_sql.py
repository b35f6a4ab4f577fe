"""The slowdown of a training by hostile SQL: the same training alone, and in parallel with one statement after another.

    python -m lab.benchmarks.hostile_sql [--threads 1]

The statements are the 40 of `tests/warehouse/test_hostile_sql.py`, each with 2 s and 400 MB, repeated while the training
runs. Wall seconds are compared, so the machine should be idle otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.warehouse.makers import play
from tests.warehouse.test_hostile_sql import FORTY, MEMORY, SECONDS
from userrl_core.errors import Refused
from warehouse import TurnLog
from warehouse.query.sandbox import ask


def main() -> None:
    """Print both wall times and the remaining share of the speed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    alone = training(threads)
    over, asked = threading.Event(), [0]

    def attack(root: Path) -> None:
        for text in itertools.cycle(FORTY.values()):
            if over.is_set():
                return
            with contextlib.suppress(Refused):
                ask(root, text, seconds=SECONDS, memory=MEMORY)
            asked[0] += 1

    with tempfile.TemporaryDirectory() as folder:
        with TurnLog.open(Path(folder), "r1") as log:
            play(log, [0.0, 1.0])
        attacker = threading.Thread(target=attack, args=(Path(folder),))
        attacker.start()
        beside = training(threads)
        over.set()
        attacker.join()
    print(f"alone {alone:.1f} s, beside {asked[0]} statements {beside:.1f} s: {100 * alone / beside:.0f} % of its pace")


def training(threads: int) -> float:
    command = [
        sys.executable,
        "-m",
        "lab.benchmarks.local_training",
        "--test",
        "20",
        "--json",
        "--threads",
        str(threads),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["wall_seconds"])


if __name__ == "__main__":
    main()
