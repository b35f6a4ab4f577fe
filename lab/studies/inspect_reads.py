"""A check that Inspect itself opens the output of ``userrl warehouse export --format inspect``, in its own environment.

    python -m lab.studies.inspect_reads [--run latest] [--python DIR/bin/python]

Without --python it creates a temporary environment and installs inspect-ai there (its pins differ from ours). Prints
Inspect's logs, samples, scores and mean next to the warehouse's. Exits with 1 if they differ or a log is refused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from userrl.machine.home import warehouse_dir
from warehouse import open_warehouse
from warehouse.files.runs import find_run
from warehouse.upkeep.exchange.conversations import conversations
from warehouse.upkeep.exchange.inspect_log import write_inspect

READ = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
read = {}
for info in list_eval_logs(sys.argv[1]):
    log = read_eval_log(info)
    scores = [s.scores["score"].value for s in log.samples if s.scores]
    read[log.eval.model.partition("/")[2]] = {
        "samples": len(log.samples), "scored": len(scores), "mean": sum(scores) / len(scores) if scores else None,
        "reported": log.results.scores[0].metrics["mean"].value if scores else None,
        "calls": sum(bool(m.tool_calls) for s in log.samples for m in s.messages if m.role == "assistant"),
    }
print(json.dumps(read))
"""


def main() -> int:
    """Export, read with Inspect, and compare."""
    parser = argparse.ArgumentParser(description="Inspect reads our logs.")
    parser.add_argument("--run", default="latest")
    parser.add_argument("--python", type=Path, help="an interpreter that has inspect-ai")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_warehouse(warehouse_dir()) as warehouse:
        run = find_run(warehouse.root, arguments.run)["run_id"]
        write_inspect(conversations(warehouse, run), Path(folder) / "logs")
        text = """SELECT policy, count(*), count(score), avg(score), sum(calls) FROM trajectories JOIN
                  (SELECT traj_id, count(choice) AS calls FROM turns WHERE run_id = $run GROUP BY traj_id) USING (traj_id)
                  WHERE run_id = $run AND phase = 'evaluate' GROUP BY policy ORDER BY policy"""
        expected = {row[0]: row[1:] for row in warehouse.sql(text, run=run).fetchall()}
        python = arguments.python or installed(Path(folder) / "venv")
        done = subprocess.run(
            [python, "-c", READ, str(Path(folder) / "logs")], capture_output=True, text=True, check=False
        )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return 1
    read = json.loads(done.stdout.splitlines()[-1])
    wrong = read.keys() != expected.keys()
    for policy, row in read.items():
        samples, scored, mean, calls = expected.get(policy, (0, 0, 0.0, 0))
        same = (row["samples"], row["scored"], row["calls"]) == (samples, scored, calls)
        same &= mean is None or max(abs(row["mean"] - mean), abs(row["reported"] - mean)) < 1e-9
        wrong |= not same
        print(
            f"{'same ' if same else 'OTHER'} {policy}: Inspect read {row}, the warehouse has {samples, scored, mean, calls}"
        )
    return int(wrong)


def installed(folder: Path) -> Path:
    """Return the interpreter of a new environment with inspect-ai."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "inspect-ai"], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
