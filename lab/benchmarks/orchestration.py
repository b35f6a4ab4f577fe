"""The cost of orchestration per stage: the same job run by hand, and as a Prefect task on a running temporary server.

    python -m lab.benchmarks.orchestration [--repeats 5]

The job is a small stage: a few demonstrations of the laptop profile in a child process. By hand means
``python -m userrl.worker.main JOB.json``. In a flow it goes through the slot, the server's lease, artifacts, result files
and Prefect's states. The limit is 2 s per stage. CPU seconds are also printed, because on a busy machine only they are
comparable.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

SMALL = {"demonstrations.episodes": 40, "demonstrations.top_k": 20}
LIMIT_SECONDS = 2.0


def main() -> None:
    """Print wall and CPU seconds of both, and their difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    home = Path(tempfile.mkdtemp(prefix="userrl-orchestration-"))
    os.environ.update(
        USERRL_HOME=str(home), PREFECT_HOME=str(home / "prefect"), PREFECT_API_URL="", PREFECT_LOGGING_LEVEL="CRITICAL"
    )
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    try:
        _compare(repeats)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _compare(repeats: int) -> None:
    from prefect import flow

    from flows.stages.stage import run_stage
    from userrl.run.job import StageJob
    from userrl.run.plan import plan_run
    from userrl.run.request import TrainRequest
    from userrl.run.run import Run

    def job(seed: int) -> tuple[Run, StageJob]:
        plan = plan_run(TrainRequest(seed=seed, overrides=SMALL, wandb="off"))
        with plan.begin() as run:
            return run, plan.job(run, "distill")

    def by_hand(seed: int) -> None:
        _, given = job(seed)
        given.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-u", "-m", "userrl.worker.main", str(given.write())]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @flow(name="orchestration")
    def orchestrated() -> None:
        """Alternate the order, so that changes of the machine's load affect both equally."""
        for number in range(repeats):
            turns = [
                lambda n=number: hand.append(_timed(by_hand, 1000 + n)),
                lambda n=number: stages.append(_timed(lambda seed: run_stage(*job(seed)), 2000 + n)),
            ]
            for turn in turns if number % 2 else reversed(turns):
                turn()

    hand: list[tuple[float, float]] = []
    stages: list[tuple[float, float]] = []
    orchestrated()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{repeats} repeats each, turn about; {os.cpu_count()} cores, load {load}")
    print(f"{'':14} {'wall median':>12} {'wall range':>16} {'CPU median':>12}")
    for name, rows in (("by hand", hand), ("in a flow", stages)):
        walls, cpus = [wall for wall, _ in rows], [cpu for _, cpu in rows]
        between = f"{min(walls):.2f} to {max(walls):.2f}"
        print(f"{name:14} {statistics.median(walls):10.2f} s {between:>16} {statistics.median(cpus):10.2f} s")
    wall = statistics.median(stage[0] - alone[0] for stage, alone in zip(stages, hand, strict=True))
    cpu = statistics.median(stage[1] - alone[1] for stage, alone in zip(stages, hand, strict=True))
    print(f"orchestration per stage: {wall:+.2f} s wall, {cpu:+.2f} s CPU (limit {LIMIT_SECONDS:g} s wall)")


def _timed(call: Any, seed: int) -> tuple[float, float]:
    wall, cpu = time.monotonic(), _cpu()
    call(seed)
    return time.monotonic() - wall, _cpu() - cpu


def _cpu() -> float:
    """Return the CPU seconds of this process, its finished children and its living ones, including the server."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    used = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system
    return used


if __name__ == "__main__":
    main()
