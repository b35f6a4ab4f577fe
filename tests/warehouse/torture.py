"""The warehouse under kill -9: writers, a compactor and a reader, killed at random; nothing lost, nothing twice.

    python -m tests.warehouse.torture --kills 100

Each writer acknowledges a trajectory on its pipe after `end` (or `credits`) returned. At the end every acknowledged
trajectory must be there exactly once with all its turns and credits, and no reader may ever have seen a duplicate, a
null row, or fewer rows than before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.warehouse.makers import play
from userrl_core.errors import LogError, UserRLError
from warehouse import TurnLog, open_warehouse
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact

ROOT = Path(__file__).parents[2]


def write(root: Path, run: str) -> None:
    """Play for ever, acknowledging each trajectory with its id, turns and reward sum."""
    draw = random.Random(os.getpid())
    log = TurnLog.open(root, run, segment_rows=60)
    step = 0
    while True:
        step += 1
        rewards = [draw.random() for _ in range(draw.randint(1, 8))]
        t = play(log, rewards, step=step, credits=rewards, text="x" * draw.randint(0, 400))
        print(json.dumps([t.traj_id, len(rewards), sum(rewards)]), flush=True)


def pack(root: Path) -> None:
    """Compact for ever, as often as it can."""
    while True:
        try:
            compact(root, everything=True, many_small_packs=4)
        except LogError:
            time.sleep(0.05)


# Each table is read once: two reads of a live file in one statement are a moment apart, and writers do not wait.
READ = """
    SELECT t.*, j.*
    FROM (SELECT count(*), count(DISTINCT (traj_id, turn)), count(traj_id), count(message), count(run_id) FROM turns) t,
         (SELECT count(*), count(DISTINCT traj_id) FROM trajectories) j
"""


@dataclass
class Outcome:
    """What happened; sound when nothing was lost, doubled or seen wrongly."""

    kills: int = 0
    acknowledged: int = 0
    turns: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    reader_queries: int = 0
    reader_violations: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.reader_violations or self.problems)


class Worker:
    """A child process that is killed and started again; remembers every line it printed."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "tests.warehouse.torture", "--root", str(root), *arguments]
        self.lines: list[str] = []
        self._threads: list[threading.Thread] = []
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self._threads.append(threading.Thread(target=self._listen, args=(self.process,)))
        self._threads[-1].start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):
                self.lines.append(line)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.kill()
        for thread in self._threads:
            thread.join()


def torture(root: Path, kills: int, *, writers: int = 4, seed: int = 0, say: Callable[[str], None] = print) -> Outcome:
    """Run until `kills` processes were killed, then compare what was acknowledged with what is there."""
    draw, outcome, started = random.Random(seed), Outcome(), time.perf_counter()
    crew = [Worker(root, "--write", f"r{n % 2}") for n in range(writers)]
    packer = Worker(root, "--pack")
    done = threading.Event()
    reader = threading.Thread(target=_read, args=(root, done, outcome))
    reader.start()
    try:
        while outcome.kills < kills:
            # The next victim is drawn; it must have done something since its last start, so that every kill hits work.
            victim = draw.choice([*crew, *crew, packer])
            before = len(victim.lines)
            deadline = time.monotonic() + 20
            while victim is not packer and len(victim.lines) < before + draw.randint(1, 40):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
            if victim is packer:
                time.sleep(draw.random() * 0.8)
            victim.kill()
            outcome.kills += 1
            victim.start()
            if outcome.kills % 10 == 0:
                say(f"{outcome.kills} kills, {sum(len(w.lines) for w in crew)} trajectories acknowledged")
    finally:
        for worker in [*crew, packer]:
            worker.stop()
        done.set()
        reader.join()
    _compare(root, crew, outcome)
    compact(root, everything=True)
    _compare(root, crew, outcome)
    outcome.problems = [p.sentence for p in check(root, repair=True).problems if not p.repaired]
    outcome.problems = [p for p in outcome.problems if "has no run.json" not in p]
    outcome.seconds = round(time.perf_counter() - started, 1)
    return outcome


def _read(root: Path, done: threading.Event, outcome: Outcome) -> None:
    while not done.is_set() and not (root / "runs").is_dir():
        time.sleep(0.05)
    last = (0, 0)
    with open_warehouse(root) as warehouse:
        while not done.is_set():
            try:
                turns, distinct, ids, messages, runs, trajectories, unique = warehouse.sql(READ).fetchall()[0]
            except UserRLError as error:
                outcome.reader_violations.append(str(error))
                continue
            outcome.reader_queries += 1
            if len({turns, distinct, ids, messages, runs}) > 1 or trajectories != unique:
                outcome.reader_violations.append(f"{turns, distinct, ids, messages, runs, trajectories, unique}")
            if turns < last[0] or trajectories < last[1]:
                outcome.reader_violations.append(f"{turns, trajectories} after {last}")
            last = (turns, trajectories)


def _compare(root: Path, crew: list[Worker], outcome: Outcome) -> None:
    acknowledged = {line[0]: (line[1], line[2]) for worker in crew for line in map(json.loads, worker.lines)}
    with open_warehouse(root) as warehouse:
        turns = warehouse.sql(
            "SELECT traj_id, count(*), count(DISTINCT turn), sum(reward), count(advantage), sum(shaped) FROM turns GROUP BY 1"
        ).fetchall()
        ended = {
            row[0]: row[1] for row in warehouse.sql("SELECT traj_id, count(*) FROM trajectories GROUP BY 1").fetchall()
        }
    there = {row[0]: row[1:] for row in turns}
    outcome.acknowledged, outcome.turns = len(acknowledged), sum(row[1] for row in turns)
    for traj_id, (size, total) in acknowledged.items():
        rows = there.get(traj_id)
        if rows is None or traj_id not in ended:
            outcome.lost += 1
        elif rows[0] != size or abs(rows[2] - total) > 1e-9 or rows[3] != size or abs(rows[4] - total) > 1e-9:
            outcome.wrong += 1
    outcome.doubled += sum(row[1] != row[2] for row in turns) + sum(count != 1 for count in ended.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--write", metavar="RUN", help=argparse.SUPPRESS)
    parser.add_argument("--pack", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(given.root, given.write)
    elif given.pack:
        pack(given.root)
    else:
        with tempfile.TemporaryDirectory() as folder:
            outcome = torture(given.root or Path(folder), given.kills, seed=given.seed)
        print(outcome)
        sys.exit(0 if outcome.sound else 1)


if __name__ == "__main__":
    main()
