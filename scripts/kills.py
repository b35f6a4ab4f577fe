"""Worker, server, flow, trainer and launcher killed in turn under ``make run``: what is left of it, and what comes out.

``python scripts/kills.py [--times 10] [VICTIM ...]`` from the repository's root. Each round is one run in a home of its own: it
is started, something is killed while it trains, and it is started again, until it ends. Each end must come soon, with one
sentence and no traceback, and leave no process; the last one must leave the weights of a run that nobody interrupted. A round that
does not hold is counted and the next one begins; the end is a table, and status 1 where anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from userrl_core.json_files import GrowingLines, read_json
from userrl_core.processes import RECORD, tagged

LAUNCHER_SECONDS, ORPHAN_SECONDS = 10.0, 15.0
"""How long after the death of what it needs the launcher may last, and any other process of the home."""
VICTIMS = ["worker", "server", "flow", "trainer", "launcher"]
SLACK = float(os.environ.get("SLACK", "1"))
"""By which a machine that is busy with other work may take longer."""
PATIENCE = 1200.0
"""How long a busy machine may take to come to the step at which something is killed."""
LAST_STAGE = "rl-1"
EVERY = 3
"""Steps from one kill to the next, and more than from one checkpoint to the next."""
OVERRIDES: dict[str, Any] = {
    "demonstrations.episodes": 120,
    "demonstrations.top_k": 80,
    "cold_start.steps": 20,
    "algorithm.batch": 3,
    "algorithm.group": 4,
    "evaluate.every": 2,
    "evaluate.tasks": 6,
    "evaluate.validation_tasks": 4,
    "stages": [{"steps": 40, "horizon": 5, "mix": {"travel": 1}}],
}


Ends = dict[str, list[tuple[float, float]]]
"""For each kind of kill, the seconds until the command ended and until nothing was left, once for each kill."""


class DoesNotHold(Exception):
    """What should be, and is not."""


class Home:
    """A home with one run in it, and every process that works there."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port

    @contextmanager
    def launched(self) -> Iterator[subprocess.Popen[str]]:
        """``make run`` with a small recipe; whatever comes, it is gone at the end."""
        given = {"overrides": OVERRIDES, "wandb": "off"}
        command = [sys.executable, "-m", "flows.cli.make_run", "--deployment", "train/equalized-r2g"]
        command += [f"{name}={json.dumps(value)}" for name, value in given.items()]
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
        """Kill whatever lives here."""
        for process in self.processes():
            process.kill()

    def processes(self) -> list[psutil.Process]:
        """What lives and has this home in its environment."""
        mine = []
        for process in psutil.process_iter():
            try:
                here = process.environ().get("USERRL_HOME") == str(self.folder)
                if here and process.status() != psutil.STATUS_ZOMBIE:
                    mine.append(process)
            except (psutil.Error, OSError):
                continue
        return mine

    def part(self, name: str) -> psutil.Process:
        """The process that plays this part now."""
        if name == "trainer":  # forked: its command line is not its own
            record = read_json(self.stage(LAST_STAGE) / RECORD) or {}
            return tagged(str(record["token"]))[0]
        words = {
            "worker": ("worker", "start"),
            "server": ("-m", "flows.machine.prefect_server"),
            "flow": ("-m", "prefect.engine"),
            "launcher": ("-m", "flows.cli.make_run"),
        }[name]
        for process in self.processes():
            line = words_of(process)
            # The supervisor's line ends with that of the server.
            if all(word in line for word in words) and "flows.machine.shared_server" not in line:
                return process
        raise DoesNotHold(f"{name}: its process is there, of {[words_of(p) for p in self.processes()]}")

    def stage(self, name: str) -> Path:
        """The folder of a stage of the run; one that is not there before the run is."""
        return next((self.folder / "runs").glob("*"), self.folder / "none") / "stages" / name

    def step(self) -> int:
        """The last step of the last stage."""
        return max((int(line["step"]) for line in GrowingLines(self.stage(LAST_STAGE) / "progress.jsonl")), default=0)

    def weights(self) -> str:
        """Hash of what the run ended with."""
        return str((read_json(self.stage(LAST_STAGE) / "result.json") or {})["value"]["sha256"])


def main() -> int:
    """Play every round; 1 when one did not hold."""
    parser = argparse.ArgumentParser(description="Kill what `make run` starts, and look what is left.")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--port", type=int, default=4391)
    parser.add_argument("victims", nargs="*", default=VICTIMS, metavar="VICTIM", help=f"of {', '.join(VICTIMS)}; all")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="userrl-kills-", ignore_cleanup_errors=True) as folder, ExitStack() as end:
        whole = end.enter_context(uninterrupted(Path(folder) / "whole"))
        ends: Ends = defaultdict(list)
        same = 0
        for number in range(arguments.times):
            print(f"round {number + 1}, load {os.getloadavg()[0]:.1f}", flush=True)
            try:
                ended = killed_in_turn(Home(Path(folder) / str(number), arguments.port), arguments.victims, ends)
                hold(ended == whole(), "the weights are those of a run that nobody interrupted")
                same += 1
            except DoesNotHold as sentence:
                print(f"  does not hold: {sentence}", flush=True)
    print("\nkilled, times, longest until the command ended, longest until nothing was left")
    for name, seconds in ends.items():
        print(f"{name}, {len(seconds)}, {max(s for s, _ in seconds):.1f} s, {max(s for _, s in seconds):.1f} s")
    print(f"the weights of a run that nobody interrupted in {same} of {arguments.times} rounds")
    return int(same < arguments.times)


@contextmanager
def uninterrupted(folder: Path) -> Iterator[Callable[[], str]]:
    """A run that nobody interrupts, without a server; what it gives is called for the hash of its weights."""
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


def killed_in_turn(home: Home, victims: Sequence[str], ends: Ends) -> str:
    """One run, with one kill of each kind; the hash of its weights. Raises DoesNotHold."""
    for name in victims:
        with home.launched() as launcher:
            reach(home, launcher, home.step() + EVERY)
            began = time.monotonic()
            home.part(name).kill()
            if name == "trainer":  # the stage is started again by itself; then a person has had enough
                at = home.step()
                reach(home, launcher, at + 1)
                launcher.send_signal(signal.SIGINT)
                began = time.monotonic()
            said = "" if name == "launcher" else last_words(launcher, began)
            gone(home, launcher, began, name, said, ends)
    with home.launched() as launcher:
        said, _ = launcher.communicate()
        hold(launcher.returncode == 0, f"started again, the run comes to its end: {said[-2000:]}")
    return home.weights()


def reach(home: Home, launcher: subprocess.Popen[str], step: int) -> None:
    """Wait until the run is at a step."""
    deadline = time.monotonic() + PATIENCE
    while home.step() < step:
        if launcher.poll() is not None:
            hold(False, f"the run lasts until step {step}: {launcher.communicate()[0]}")
        hold(time.monotonic() < deadline, f"the run comes to step {step}")
        time.sleep(0.02)


def last_words(launcher: subprocess.Popen[str], began: float) -> str:
    """What the launcher says at its end, which must be soon."""
    try:
        said, _ = launcher.communicate(timeout=SLACK * LAUNCHER_SECONDS - (time.monotonic() - began))
    except subprocess.TimeoutExpired:
        launcher.send_signal(signal.SIGABRT)  # it says where it is
        hold(False, f"the launcher ends within {LAUNCHER_SECONDS:.0f} s: {launcher.communicate()[0]}")
    hold("Traceback" not in said, f"no traceback: {said[-2000:]}")
    return said.strip().splitlines()[-1]


def gone(home: Home, launcher: subprocess.Popen[str], began: float, name: str, said: str, ends: Ends) -> None:
    """Wait until nothing of the home is left, and say how long it took."""
    ended = time.monotonic() - began
    while left := [process for process in home.processes() if process.pid != launcher.pid]:
        names = [words_of(process)[-4:] for process in left]
        hold(time.monotonic() - began < SLACK * ORPHAN_SECONDS, f"no orphan after {ORPHAN_SECONDS:.0f} s: {names}")
        time.sleep(0.1)
    what = "kill -9 trainer, Ctrl-C" if name == "trainer" else f"kill -9 {name}"
    ends[what].append((ended, time.monotonic() - began))
    print(f"  {what:24} command {ended:4.1f} s, all {ends[what][-1][1]:4.1f} s  {said}", flush=True)


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; empty where it has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def hold(it_does: bool, sentence: str) -> None:
    """Raise DoesNotHold where it does not."""
    if not it_does:
        raise DoesNotHold(sentence)


if __name__ == "__main__":
    sys.exit(main())
