"""Worker, server, flow, trainer and launcher killed in turn under ``make run``: leftover processes, and the final weights.

``python -m lab.checks.kills [--times 10] [--at-once 2] [VICTIM ...]`` from the repository's root. Each round is one run in
its own home. It is started, a process is killed, and it is started again, until each victim was killed once and the run
has ended. Victims and moments are random: any order, any moment of the demonstrations, the cold start and RL.

Each command must end soon, with one sentence and no traceback, and leave no process. The last one must give the weights
of an uninterrupted run. A failed round is counted and the next one begins. Prints a table, and exits with 1 if a round
failed. Most of a round's time is starting server, worker and flow again; the recipe is already small.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from userrl_core.json_files import GrowingLines, read_json
from userrl_core.processes import RECORD, tagged

LAUNCHER_SECONDS, ORPHAN_SECONDS = 10.0, 15.0
"""Seconds that the launcher, and any other process of the home, may take to end after a process they need has died."""
VICTIMS = ["worker", "server", "flow", "trainer", "launcher"]
SLACK = float(os.environ.get("SLACK", "1"))
"""Factor of additional time on a busy machine."""
PATIENCE = 1200.0
"""Seconds that a busy machine may take to reach the step of a kill."""
DEMONSTRATIONS, LAST_STAGE = "distill", "rl-1"
STAGES = {DEMONSTRATIONS: 3, "sft": 20, LAST_STAGE: 24}
"""Number of progress lines that each stage writes. The evaluation afterwards changes no weight."""
RESERVE = 8
"""Lines after the last possible moment. Each kill waits for a new line, so that nothing is killed before it has begun."""
OVERRIDES: dict[str, Any] = {
    "demonstrations.episodes": 120,
    "demonstrations.top_k": 80,
    "cold_start.steps": STAGES["sft"],
    "algorithm.batch": 3,
    "algorithm.group": 4,
    "evaluate.every": 2,
    "evaluate.tasks": 6,
    "evaluate.validation_tasks": 4,
    "stages": [{"steps": STAGES[LAST_STAGE], "horizon": 5, "mix": {"travel": 1}}],
}


Ends = dict[str, list[tuple[str, float, float]]]
"""For each kind of kill, one entry per kill: the stage, the seconds until the command ended and until no process was left."""


class DoesNotHold(Exception):
    """An expected condition that failed."""


@dataclass(frozen=True)
class Say:
    """Print a line of one round. Several rounds run in parallel."""

    number: int

    def __call__(self, line: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} round {self.number}: {line}", flush=True)


class Home:
    """A home with one run in it, and every process that works there."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port

    @contextmanager
    def launched(self) -> Iterator[subprocess.Popen[str]]:
        """Run ``make run`` with a small recipe. It is always gone at the end."""
        options = {"overrides": OVERRIDES, "wandb": "off"}
        command = [sys.executable, "-m", "flows.cli.make_run", "--deployment", "train/equalized-r2g"]
        command += [f"{name}={json.dumps(value)}" for name, value in options.items()]
        own = {
            "USERRL_HOME": str(self.folder),
            "USERRL_PORT": str(self.port),
            "USERRL_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
        }
        launcher = subprocess.Popen(
            command, env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield launcher
        finally:
            self.clear()
            launcher.wait()

    def clear(self) -> None:
        """Kill every process of this home."""
        for process in self.processes():
            process.kill()

    def processes(self) -> list[psutil.Process]:
        """Return the live processes with this home in their environment."""
        mine = []
        for process in psutil.process_iter():
            try:
                here = process.environ().get("USERRL_HOME") == str(self.folder)
                if here and process.status() != psutil.STATUS_ZOMBIE:
                    mine.append(process)
            except (psutil.Error, OSError):
                continue
        return mine

    def kill(self, name: str) -> str:
        """Kill -9 the process with this role. Returns the position of the run."""
        while True:
            victim, place = self.part(name), self.place()
            try:
                victim.kill()
            except psutil.NoSuchProcess:  # its stage had just ended: that of the next one is hit
                continue
            return place

    def part(self, name: str) -> psutil.Process:
        """Return the process with this role now."""
        if name == "trainer":  # forked: its command line is not its own
            return self.trainer()
        words = {
            "worker": ("worker", "start"),
            "server": ("-m", "flows.server.prefect_server"),
            "flow": ("-m", "prefect.engine"),
            "launcher": ("-m", "flows.cli.make_run"),
        }[name]
        for process in self.processes():
            line = words_of(process)
            # The supervisor's line ends with that of the server.
            if all(word in line for word in words) and "flows.server.shared_server" not in line:
                return process
        raise DoesNotHold(f"{name}: its process is there, of {[words_of(p) for p in self.processes()]}")

    def trainer(self) -> psutil.Process:
        """Return the process of the current stage; between two stages, of the next one."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for stage in reversed(STAGES):
                record = read_json(self.stage(stage) / RECORD) or {}
                if processes := tagged(str(record.get("token"))):
                    return processes[0]
            time.sleep(0.02)
        raise DoesNotHold("a stage has a process")

    def stage(self, name: str) -> Path:
        """Return the folder of a stage. It does not exist before the run does."""
        return next((self.folder / "runs").glob("*"), self.folder / "none") / "stages" / name

    def lines(self, stage: str) -> list[dict[str, Any]]:
        """Return the progress lines of a stage, including repeated steps."""
        return list(GrowingLines(self.stage(stage) / "progress.jsonl"))

    def place(self) -> str:
        """Return the position of the run."""
        stage = next((name for name in reversed(STAGES) if self.lines(name)), DEMONSTRATIONS)
        return f"{stage} {len(self.lines(stage))}"

    def weights(self) -> str:
        """Return the hash of the final weights."""
        return str((read_json(self.stage(LAST_STAGE) / "result.json") or {})["value"]["sha256"])


def main() -> int:
    """Play every round. Returns 1 if one failed."""
    parser = argparse.ArgumentParser(description="Kill what `make run` starts, and look what is left.")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument(
        "--at-once", type=int, default=1, help="rounds at the same time, each with a home and a port of its own"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order and the moments")
    parser.add_argument("--port", type=int, default=4391, help="the first round's; the next one has the next")
    parser.add_argument("victims", nargs="*", default=VICTIMS, metavar="VICTIM", help=f"of {', '.join(VICTIMS)}; all")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="userrl-kills-"))
    with ExitStack() as end:
        whole = end.enter_context(uninterrupted(folder / "whole"))
        ends: Ends = defaultdict(list)

        def play(number: int) -> bool:
            draw = random.Random(f"{arguments.seed} {number}")
            say = Say(number)
            say(f"begins, load {os.getloadavg()[0]:.1f}")
            try:
                home = Home(folder / str(number), arguments.port + number)
                ended = killed_in_turn(home, arguments.victims, draw, ends, say)
                hold(ended == whole(), "the weights are those of a run that nobody interrupted")
            except DoesNotHold as sentence:
                say(f"does not hold: {sentence}")
                return False
            say(f"ended, load {os.getloadavg()[0]:.1f}, weights {ended[:12]} as uninterrupted")
            shutil.rmtree(home.folder)
            return True

        with ThreadPoolExecutor(arguments.at_once) as rounds:
            same = sum(rounds.map(play, range(arguments.times)))
    print("\nkilled, times, longest until the command ended, longest until nothing was left, in which stages")
    for name, kills in sorted(ends.items()):
        stages = ", ".join(f"{stage} {count}" for stage, count in Counter(stage for stage, _, _ in kills).items())
        print(
            f"{name}, {len(kills)}, {max(s for _, s, _ in kills):.1f} s, {max(s for _, _, s in kills):.1f} s, {stages}"
        )
    print(f"the weights of a run that nobody interrupted in {same} of {arguments.times} rounds")
    if same == arguments.times:
        shutil.rmtree(folder)
    else:
        print(f"the other rounds' homes are in {folder}")
    return int(same < arguments.times)


@contextmanager
def uninterrupted(folder: Path) -> Iterator[Callable[[], str]]:
    """Run without interruption and without a server, and return the hash of the weights."""
    own = {"USERRL_HOME": str(folder), "PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": ""}
    patience = {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180", "USERRL_THREADS": "1"}
    request = json.dumps({"recipe": "equalized-r2g", "overrides": OVERRIDES, "wandb": "off"})
    command = [sys.executable, "-m", "flows.train", request]
    folder.mkdir()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    flow = subprocess.Popen(command, env=os.environ | own | patience, **quiet)

    def weights() -> str:
        hold(flow.wait() == 0, "the run that nobody interrupts comes to its end")
        return Home(folder, 0).weights()

    try:
        yield weights
    finally:
        Home(folder, 0).clear()
        flow.wait()


def killed_in_turn(home: Home, victims: Sequence[str], draw: random.Random, ends: Ends, say: Say) -> str:
    """Run with one kill of each victim, and return the hash of the weights. Raises DoesNotHold."""
    moments = sorted(draw.randint(1, sum(STAGES.values()) - RESERVE) for _ in victims)
    for name, moment in zip(draw.sample(victims, len(victims)), moments, strict=True):
        with home.launched() as launcher:
            reach(home, launcher, moment)
            time.sleep(draw.random())  # of the second or so that a step takes
            place = home.kill(name)
            began = time.monotonic()
            if name == "trainer":  # the stage is started again by itself; then a person has had enough
                reach(home, launcher)
                began = time.monotonic()
                launcher.send_signal(signal.SIGINT)
            output = "" if name == "launcher" else last_words(launcher, began)
            ended, all_ended = gone(home, launcher, began)
        action = "kill -9 trainer, Ctrl-C" if name == "trainer" else f"kill -9 {name}"
        ends[action].append((place.split()[0], ended, all_ended))
        say(f"{action} in {place}: command {ended:.1f} s, all {all_ended:.1f} s  {output}")
    with home.launched() as launcher:
        output, _ = launcher.communicate()
        hold(launcher.returncode == 0, f"started again, the run comes to its end: {output[-2000:]}")
    return home.weights()


def reach(home: Home, launcher: subprocess.Popen[str], moment: int = 0) -> None:
    """Wait until the run has reached a moment (in progress lines of all stages) and written a new line."""
    before = [len(home.lines(stage)) for stage in STAGES]
    deadline = time.monotonic() + PATIENCE
    while True:
        lines = [home.lines(stage) for stage in STAGES]
        furthest = sum(len({line["step"] for line in stage}) for stage in lines)
        if furthest >= moment and [len(stage) for stage in lines] != before:
            return
        if launcher.poll() is not None:
            hold(False, f"the run lasts until moment {moment}: {launcher.communicate()[0]}")
        hold(time.monotonic() < deadline, f"the run comes to moment {moment}")
        time.sleep(0.02)


def last_words(launcher: subprocess.Popen[str], began: float) -> str:
    """Return the launcher's last output. It must end soon."""
    try:
        output, _ = launcher.communicate(timeout=SLACK * LAUNCHER_SECONDS - (time.monotonic() - began))
    except subprocess.TimeoutExpired:
        launcher.send_signal(signal.SIGABRT)  # it says where it is
        hold(False, f"the launcher ends within {LAUNCHER_SECONDS:.0f} s: {launcher.communicate()[0]}")
    hold("Traceback" not in output, f"no traceback: {output[-2000:]}")
    return output.strip().splitlines()[-1]


def gone(home: Home, launcher: subprocess.Popen[str], began: float) -> tuple[float, float]:
    """Wait until no process of the home is left. Returns the seconds until the command ended, and until then. Raises
    DoesNotHold.
    """
    ended = time.monotonic() - began
    while left := [process for process in home.processes() if process.pid != launcher.pid]:
        names = [words_of(process)[-4:] for process in left]
        hold(time.monotonic() - began < SLACK * ORPHAN_SECONDS, f"no orphan after {ORPHAN_SECONDS:.0f} s: {names}")
        time.sleep(0.1)
    return ended, time.monotonic() - began


def words_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process, empty if it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def hold(it_does: bool, sentence: str) -> None:
    """Raise DoesNotHold if the condition is false."""
    if not it_does:
        raise DoesNotHold(sentence)


if __name__ == "__main__":
    sys.exit(main())
