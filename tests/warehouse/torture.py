"""The warehouse under kill -9: writers, a compactor and a reader, killed at random; nothing lost, nothing twice.

    python -m tests.warehouse.torture --kills 100

Each writer acknowledges a trajectory on its pipe after `end` (or `credits`) returned. At the end every acknowledged
trajectory must be there exactly once with all its turns and credits, and no reader may ever have seen a duplicate, a
null row, or fewer rows than before. A turn is found by a text search or counted as not indexed yet, at every moment.

Hard (`lab/checks/warehouse_safety.py`): two threads a writer, turns that are too long for a live file, two compactors, and
at every third kill a process, perhaps the victim, is stopped (SIGSTOP) for a while.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
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

from tests.places import ROOT
from tests.warehouse.makers import play
from userrl_core.errors import ConfigError, UserRLError
from warehouse import TurnLog, Warehouse, open_warehouse
from warehouse.files.layout import LIVE_LINE_BYTES
from warehouse.search.index import INDEX
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact

GIANT = "x" * LIVE_LINE_BYTES


def write(root: Path, run: str, threads: int) -> None:
    """Play for ever, acknowledging each trajectory with its id, turns, reward sum and a word that only it has."""
    log = TurnLog.open(root, run, segment_rows=60)
    steps, saying = itertools.count(1), threading.Lock()

    def play_on(thread: int) -> None:
        draw = random.Random(f"{os.getpid()} {thread}")
        for step in steps:
            rewards = [draw.random() for _ in range(draw.randint(1, 8))]
            giant = threads > 1 and draw.random() < 0.01
            word = f"word{log.writer}a{step}"
            text = f"{GIANT if giant else 'x' * draw.randint(0, 400)} {word}r{run}"
            t = play(
                log, rewards[:1] if giant else rewards, step=step, credits=rewards[:1] if giant else rewards, text=text
            )
            with saying:
                print(json.dumps([t.traj_id, len(t.turns), sum(t.rewards), f"{word}r{run}"]), flush=True)

    for thread in range(1, threads):
        threading.Thread(target=play_on, args=(thread,)).start()
    play_on(0)


def pack(root: Path) -> None:
    """Compact for ever, as often as it can."""
    while True:
        try:
            compact(root, everything=True, many_small_packs=4)
        except UserRLError:
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
    unfound: int = 0
    """Turns that no search found although none was said to be missing from the text index."""
    searches: int = 0
    stops: int = 0
    reader_queries: int = 0
    reader_violations: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.unfound or self.reader_violations or self.problems)


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

    def hold(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.kill()
        for thread in self._threads:
            thread.join()


def torture(
    root: Path, kills: int, *, writers: int = 4, seed: int = 0, hard: bool = False, say: Callable[[str], None] = print
) -> Outcome:
    """Run until `kills` processes were killed, then compare what was acknowledged with what is there."""
    draw, outcome, started = random.Random(seed), Outcome(), time.perf_counter()
    crew = [Worker(root, "--write", f"r{n % 2}", "--threads", str(1 + hard)) for n in range(writers)]
    packers = [Worker(root, "--pack") for _ in range(1 + hard)]
    done = threading.Event()
    reader = threading.Thread(target=_read, args=(root, crew, done, outcome))
    reader.start()
    try:
        while outcome.kills < kills:
            # The next victim is drawn; it must have done something since its last start, so that every kill hits work.
            victim = draw.choice([*crew, *crew, *packers])
            before = len(victim.lines)
            deadline = time.monotonic() + 20
            while victim not in packers and len(victim.lines) < before + draw.randint(1, 40):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
            if victim in packers:
                time.sleep(draw.random() * 0.8)
            held = draw.choice([*crew, *packers]) if hard and draw.random() < 1 / 3 else None
            if held:
                outcome.stops += 1
                held.hold()
                time.sleep(draw.random() * 0.5)
            victim.kill()
            outcome.kills += 1
            victim.start()
            if held:
                time.sleep(draw.random() * 0.5)
                held.go_on()
            if outcome.kills % 10 == 0:
                say(f"{outcome.kills} kills, {sum(len(w.lines) for w in crew)} trajectories acknowledged")
    finally:
        for worker in [*crew, *packers]:
            worker.stop()
        done.set()
        reader.join()
    _compare(root, crew, outcome)
    compact(root, everything=True)
    _compare(root, crew, outcome)
    acknowledged = [json.loads(line) for worker in crew for line in worker.lines]
    with open_warehouse(root) as warehouse:
        for _, turns, _, word in draw.sample(acknowledged, min(len(acknowledged), 200)):
            outcome.searches += 1
            outcome.unfound += len(warehouse.search(word)) != turns
        outcome.unfound += warehouse.unindexed()
    outcome.problems = [p.sentence for p in check(root, repair=True).problems if not p.repaired]
    outcome.problems = [p for p in outcome.problems if "has no run.json" not in p]
    outcome.seconds = round(time.perf_counter() - started, 1)
    return outcome


def _read(root: Path, crew: list[Worker], done: threading.Event, outcome: Outcome) -> None:
    while not done.is_set() and not (root / "runs").is_dir():
        time.sleep(0.05)
    last, draw = (0, 0), random.Random(0)
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
            if (root / INDEX).exists() and (lines := draw.choice(crew).lines):
                _find(warehouse, json.loads(draw.choice(lines)), outcome)


def _find(warehouse: Warehouse, acknowledged: tuple[int, int, float, str], outcome: Outcome) -> None:
    """A turn that is not found must be counted as not indexed; the index may have got it between the two questions."""
    _, turns, _, word = acknowledged
    with contextlib.suppress(ConfigError):  # it is being brought up to date
        for _ in range(2):
            if len(warehouse.search(word)) == turns or warehouse.unindexed():
                break
        else:
            outcome.unfound += 1
        outcome.searches += 1


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
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--pack", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(given.root, given.write, given.threads)
    elif given.pack:
        pack(given.root)
    else:
        with tempfile.TemporaryDirectory() as folder:
            outcome = torture(given.root or Path(folder), given.kills, seed=given.seed)
        print(outcome)
        sys.exit(0 if outcome.sound else 1)


if __name__ == "__main__":
    main()
