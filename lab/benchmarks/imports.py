"""Time and peak memory of an import, and of plain Python json, on the same file.

    python -m lab.benchmarks.imports lines --turns 1000000      chat lines with this many turns
    python -m lab.benchmarks.imports document --megabytes 2000  one results.json of tau2-bench of this size

Each reading runs in a separate process. "json" is ``json.loads`` of each line, or ``json.load`` of the document.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

TURNS = 10
TEXT = "I looked at your reservation and changed the second flight as you asked. " * 3


def messages(number: int) -> list[dict[str, str]]:
    chat = [{"role": "user", "content": f"Request {number}: please change my flight."}]
    for turn in range(TURNS):
        chat += [
            {"role": "assistant", "content": f"{number}.{turn} {TEXT}"},
            {"role": "user", "content": f"Thank you. And {turn}?"},
        ]
    return chat


def write_lines(file: IO[str], turns: int) -> None:
    for number in range(turns // TURNS):
        row = {"task_id": number // 4, "model": "m", "score": number % 2, "messages": messages(number)}
        file.write(json.dumps(row) + "\n")


def write_document(file: IO[str], size: int) -> None:
    info = {"agent_info": {"llm": "m"}, "user_info": {"llm": "u"}, "environment_info": {"domain_name": "made"}}
    file.write(f'{{"info": {json.dumps(info)}, "tasks": [], "simulations": [\n')
    number = 0
    while file.tell() < size:
        simulation = {
            "id": str(number),
            "task_id": str(number // 4),
            "trial": number % 4,
            "termination_reason": "user_stop",
            "reward_info": {"reward": number % 2},
            "messages": messages(number),
        }
        file.write((",\n" if number else "") + json.dumps(simulation, indent=1))
        number += 1
    file.write("\n]}\n")


def read(path: Path, how: str, home: str) -> None:
    """Read the file in this process, and print seconds and peak memory."""
    began = time.perf_counter()
    if how == "import":
        os.environ["USERRL_HOME"] = home
        import userrl

        (run,) = userrl.import_logs(path)
        detail = f"{sum(item.turns for item in run.policies):,} turns"
    elif path.suffix == ".jsonl":
        with path.open() as file:
            detail = f"{sum(len(json.loads(line)['messages']) for line in file):,} messages"
    else:
        with path.open() as file:
            detail = f"{len(json.load(file)['simulations']):,} simulations"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{how:7} {time.perf_counter() - began:8.1f} s  {peak:8.0f} MB peak  {detail}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("lines", "document", "read"))
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--megabytes", type=int, default=2_000)
    parser.add_argument("rest", nargs="*")
    given = parser.parse_args()
    if given.kind == "read":
        path, how, home = given.rest
        read(Path(path), how, home)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("chats.jsonl" if given.kind == "lines" else "results.json")
        with path.open("w") as file:
            if given.kind == "lines":
                write_lines(file, given.turns)
            else:
                write_document(file, given.megabytes * 1_000_000)
        print(f"{given.kind}: {path.stat().st_size / 1e6:,.0f} MB")
        for how in ("json", "import"):
            command = [
                sys.executable,
                "-m",
                "lab.benchmarks.imports",
                "read",
                str(path),
                how,
                str(Path(folder) / "home"),
            ]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
