"""The page over a million turns: time per page and memory of its server, at rest and during a writing run.

    python -m lab.benchmarks.page --turns 1000000 --out figures.json

A real server (`userrl view`) is asked over HTTP. Its answer holds everything a page shows at first. So the time covers
queries and drawing, without the browser's. A run's curve, conversations and report are queried after its answer, and are not
in its time. Each page is asked once of a new server (``first``), then ten times more
(median, worst; ``cpu``: the server's own processor time, which other work hardly changes). The warehouse is that of
`lab/benchmarks/warehouse.py`: packed, indexed, about 870 bytes of text per turn. The writing run logs a thousand turns per
second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from lab.benchmarks.warehouse import WRITER, machine

REPEATS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--home", type=Path, help="a home that an earlier call filled, or where this one keeps it")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.home / "warehouse", arguments.write)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(arguments.home or Path(folder), arguments.turns)
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


def measure(home: Path, turns: int) -> dict[str, Any]:
    from warehouse.upkeep.compact import compact

    root = home / "warehouse"
    if not root.is_dir():
        subprocess.run([*WRITER, "--root", root, "--turns", str(turns), "--write", "r1", "1"], check=True)
        compact(root, everything=True)
    figures: dict[str, Any] = {"machine": machine(), "load_average": round(os.getloadavg()[0], 1), "turns": turns}
    with server(home) as (base, process):
        figures["at rest"] = asked(base, process, root)
    name = f"live-{int(time.time())}"
    writer = subprocess.Popen([sys.executable, "-m", "lab.benchmarks.page", "--home", home, "--write", name])
    try:
        while not list(root.glob(f"runs/run={name}/live/turns.*")):
            time.sleep(0.1)
        with server(home) as (base, process):
            figures["beside a writing run"] = asked(base, process, root)
    finally:
        writer.kill()
        writer.wait()
    return figures


def write(root: Path, run: str) -> None:
    """Log conversations of eight turns, a thousand turns per second, until killed."""
    from userrl_core.records import RolloutContext, Task, Trajectory, Turn
    from warehouse import TurnLog

    text, began = "a word or two " * 20, time.monotonic()
    log = TurnLog.open(root, run, run_fields={"name": "live", "recipe": "equalized-r2g"})
    for played in range(10**9):
        task = Task("tau", f"t{played // 8}", "train", {})
        context = RolloutContext("rl-1", played // 128, "train", "model")
        trajectory = Trajectory(task, played % 8, 16, 0, context, f"{played // 8}")
        log.begin(trajectory)
        for number in range(1, 9):
            turn = Turn(number, "action", text, text, text, text, 0.5, 0, 900, 60, 0.4, 0.2)
            trajectory.turns.append(turn)
            log.turn(trajectory, turn)
        trajectory.score, trajectory.stop_reason = 0.5, "horizon"
        log.end(trajectory)
        time.sleep(max(0.0, began + played * 8 / 1000 - time.monotonic()))


@contextlib.contextmanager
def server(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    environment = {**os.environ, "USERRL_HOME": str(home)}
    command = [sys.executable, "-m", "flows.cli.main", "view", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        while True:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(base + "/people/none", timeout=60)  # a page without a question
                break
            time.sleep(0.1)
        yield base, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def asked(base: str, process: psutil.Process, root: Path) -> dict[str, Any]:
    from warehouse import open_warehouse

    with open_warehouse(root) as warehouse:
        traj_id = warehouse.rows(
            "SELECT traj_id FROM trajectories WHERE run_id = 'r1' ORDER BY traj_id LIMIT 1 OFFSET 70000"
        )
        late = warehouse.rows(
            "SELECT traj_id FROM trajectories WHERE gym = 'tau' ORDER BY score DESC, traj_id LIMIT 1 OFFSET 9000"
        )
    pages = {
        "runs": "/",
        "first page of the list": "/trajectories",
        "filtered page": "/trajectories?gym=tau&score_from=0.5&phase=train",
        "sorted page after 9,000 rows": f"/trajectories?gym=tau&sort=score&after={late[0]['traj_id']}",
        "text search, a common word": f"/trajectories?text={common_word(root)}",
        "replay": f"/trajectory/{traj_id[0]['traj_id']}",
        "group": f"/group/{traj_id[0]['traj_id']}",
        "run": "/run/r1",
    }
    figures: dict[str, Any] = {}
    peak = process.memory_info().rss
    for name, path in pages.items():
        took, cpu = [], []
        for _ in range(1 + REPEATS):
            began, before = time.perf_counter(), sum(process.cpu_times()[:2])
            assert httpx.get(base + path, timeout=120).status_code == 200
            took.append(time.perf_counter() - began)
            cpu.append(sum(process.cpu_times()[:2]) - before)
            peak = max(peak, process.memory_info().rss)
        figures[name] = {
            "first_s": round(took[0], 3),
            "median_s": round(statistics.median(took[1:]), 3),
            "worst_s": round(max(took[1:]), 3),
            "cpu_s": round(statistics.median(cpu[1:]), 3),
        }
    return {**figures, "memory_MB": round(peak / 2**20)}


def common_word(root: Path) -> str:
    """Return the most common word of a sample of turns. Searching for it reads the most turns."""
    from warehouse import open_warehouse

    with open_warehouse(root) as warehouse:
        rows = warehouse.rows("SELECT content FROM turns WHERE run_id = 'r1' AND content IS NOT NULL LIMIT 1000")
    counts = Counter(word for row in rows for word in set(row["content"].split()) if word.isalpha())
    return str(counts.most_common(1)[0][0])


if __name__ == "__main__":
    main()
