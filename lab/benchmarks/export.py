"""Ten homes of four million turns, exported to one folder, and questions to the whole of it.

    python -m lab.benchmarks.export [--homes 10] [--turns 4000000] [--folder FOLDER] [--out figures.json]

Each home is written by `lab/benchmarks/warehouse.py`, packed, exported and deleted, so that the disk holds one home and the
export. Export and packing are the product's own. The text index is left out, since an export does not read it. CPU seconds are
printed beside wall seconds: other work on the machine hardly changes them. Forty million turns need 14 GB of disk.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import psutil

from lab.benchmarks.warehouse import machine
from warehouse.upkeep import export as exporting
from warehouse.upkeep.compact import compact

WRITER = "lab.benchmarks.warehouse"
TURNS = "read_parquet('{target}/home=*/turns/*/*.parquet', hive_partitioning = true, union_by_name = true)"
QUESTIONS = {
    "number of turns": "SELECT count(*) FROM {turns}",
    "distinct keys of turns": "SELECT count(*) FROM (SELECT DISTINCT home, traj_id, turn FROM {turns})",
    "mean reward by gym": "SELECT gym, avg(reward) FROM {turns} GROUP BY gym ORDER BY gym",
    "learning curve of one run": "SELECT step, avg(reward) FROM {turns} WHERE run = 'r0' AND phase = 'train' GROUP BY ALL",
}


def main() -> None:
    """Print the figures, and write them to a file if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--homes", type=int, default=10)
    parser.add_argument("--turns", type=int, default=4_000_000, help="of each home")
    parser.add_argument("--folder", type=Path, help="parent of the temporary folder, on a disk with enough space")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="export-") as folder:
        figures = measure(Path(folder), given.homes, given.turns)
    if given.out:
        given.out.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


def measure(folder: Path, homes: int, turns: int) -> dict[str, Any]:
    """Return the figures of writing, packing and exporting the homes, and of the questions."""
    target = folder / "target"
    exporting.compact = functools.partial(compact, index=False)  # type: ignore[attr-defined]
    stages: dict[str, list[dict[str, float]]] = {"writing": [], "packing": [], "export": []}
    rows = 0
    for number in range(homes):
        root = folder / "home"
        command = [
            sys.executable,
            "-m",
            WRITER,
            "--root",
            str(root),
            "--turns",
            str(turns),
            "--write",
            f"r{number}",
            str(number),
        ]
        _, spent = timed(lambda command=command: subprocess.run(command, check=True, stdout=subprocess.PIPE))
        stages["writing"].append(spent)
        stages["packing"].append(timed(lambda root=root: compact(root, everything=True, index=False))[1])
        done, spent = timed(lambda root=root: exporting.export(root, str(target)))
        stages["export"].append(spent)
        rows += done.rows
        shutil.rmtree(root)
        print(
            f"home {number + 1} of {homes}: {done.rows:,} rows in {done.objects} objects", file=sys.stderr, flush=True
        )
    objects = list(target.rglob("*.parquet"))
    of_turns = [path for path in objects if path.parent.parent.name == "turns"]
    figures: dict[str, Any] = {"machine": machine(), "homes": homes}
    figures |= {
        name: {key: round(sum(one[key] for one in all_), 1) for key in all_[0]} for name, all_ in stages.items()
    }
    figures |= {"rows of all tables": rows, "objects": len(objects), "GB": gigabytes(objects)}
    figures |= {"objects of turns": len(of_turns), "GB of turns": gigabytes(of_turns)}
    duckdb.sql("SET memory_limit = '4GB'")
    for question, text in QUESTIONS.items():
        answer, spent = timed(lambda text=text: duckdb.sql(text.format(turns=TURNS.format(target=target))).fetchall())
        figures[question] = {**spent, "answer": answer[0][0] if len(answer) == 1 else f"{len(answer)} rows"}
    return figures


def gigabytes(paths: Sequence[Path]) -> float:
    return round(sum(path.stat().st_size for path in paths) / 1e9, 2)


def timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return the result, with the wall and CPU seconds of this process and of the processes that it waited for."""
    began, before = time.perf_counter(), psutil.Process().cpu_times()
    result = work()
    spent = sum(after - first for after, first in zip(psutil.Process().cpu_times()[:4], before[:4], strict=True))
    return result, {"seconds": round(time.perf_counter() - began, 2), "cpu_seconds": round(spent, 2)}


if __name__ == "__main__":
    main()
