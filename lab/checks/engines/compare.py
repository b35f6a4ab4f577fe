"""Ask DuckDB, Polars, ClickHouse and Spark the questions of questions.sql, and compare with `userrl sql`.

    python -m venv engines && engines/bin/pip install chdb-core pyspark     # and Java: apt-get install openjdk-17-jre-headless
    USERRL_HOME=... python lab/checks/engines/compare.py --python engines/bin/python --to data/engines.csv

The home's warehouse is exported to a temporary folder. ClickHouse (chdb-core, 181 MB) and Spark (pyspark, 456 MB) are no
dependencies of userrl: they run in the interpreter given by --python. The file has one row per engine and question: rows, rows that
differ, and seconds. The first question of an engine includes what it does once, such as starting its JVM's workers.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from userrl.machine.home import warehouse_dir
from warehouse import open_warehouse
from warehouse.upkeep.export import export

ANSWERS = Path(__file__).parent / "answers.py"
TRUTH = {
    "learning_curve": "SELECT run_id, stage, phase, step, trajectories, rejected, score, return_sum, turns, success "
    "FROM learning_curve(in_phase := NULL)",
    "pass_hat_k": "FROM pass_hat_k(most := 3)",
    "group_statistics": "FROM group_statistics()",
    "effective_turns": "FROM effective_turns() WHERE gym IS NOT NULL",
    "rewinds_hidden": "SELECT run_id, phase, stage, step, count(*) AS turns, count(DISTINCT traj_id) AS trajectories, "
    "sum(reward) AS reward FROM turns GROUP BY run_id, phase, stage, step",
}
"""Each question as `userrl sql` is asked."""
Rows = Sequence[Mapping[str, Any]]


def main() -> int:
    """Write the file. Returns 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter with chdb-core and pyspark")
    parser.add_argument("--to", type=Path, default=Path("data/engines.csv"))
    parser.add_argument("engines", nargs="*", default=["duckdb", "polars", "clickhouse", "spark"])
    given = parser.parse_args()
    table: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        done = export(warehouse_dir(), folder)
        print(f"exported {done.rows:,} rows, {done.bytes:,} bytes, {done.objects} objects", file=sys.stderr)
        own_folder = next(Path(folder).glob("home=*"))
        with open_warehouse(warehouse_dir()) as warehouse:
            truth = {question: warehouse.rows(text) for question, text in TRUTH.items()}
        for engine in given.engines:
            python = sys.executable if engine in ("duckdb", "polars") else given.python
            answered = json.loads(
                subprocess.check_output([python, str(ANSWERS), engine, str(own_folder)]).splitlines()[-1]
            )
            for question, rows in truth.items():
                own = answered[question]
                apart = len(differences(rows, own["rows"]))
                row = {"engine": engine, "question": question, "rows": len(rows), "differ": apart}
                table.append({**row, "seconds": f"{own['seconds']:.2f}"})
                print(table[-1], file=sys.stderr)
    given.to.parent.mkdir(parents=True, exist_ok=True)
    with given.to.open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return 1 if any(row["differ"] for row in table) else 0


def differences(expected: Rows, answered: Rows) -> list[str]:
    """Return the keys of rows that only one side has, or whose numbers differ by more than a millionth.

    The key is the texts, and `step` and `k`. The order counts for nothing. ClickHouse's deviations differ in the eighth digit.
    """
    here, there = ({_key(row): row for row in rows} for rows in (expected, answered))
    apart = {key for key in here.keys() & there.keys() if not _alike(here[key], there[key])}
    return sorted(apart | (here.keys() ^ there.keys()))


def _key(row: Mapping[str, Any]) -> str:
    named = {name: value for name, value in row.items() if isinstance(value, str) or name in ("step", "k")}
    return json.dumps(
        {name: int(value) if name in ("step", "k") else value for name, value in named.items()}, sort_keys=True
    )


def _alike(here: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    if here.keys() != there.keys():
        return False
    return all(
        math.isclose(value, there[name], rel_tol=1e-6, abs_tol=1e-9)
        if isinstance(value, int | float) and isinstance(there[name], int | float)
        else value == there[name]
        for name, value in here.items()
    )


if __name__ == "__main__":
    sys.exit(main())
