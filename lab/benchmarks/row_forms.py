"""Compacted files as native DuckDB files (packs) compared with merged Parquet: building, size, views, look-ups.

    python -m lab.benchmarks.warehouse --turns 1000000 --root /big/w --write r1 1
    python -m lab.benchmarks.row_forms --sealed /big/w --out /big/forms

Both are made from the same sealed segments, with credits joined to their turns, and read through the same readers: merged
Parquet is put in the place of sealed segments. Views: a new reader each, with files dropped from the page cache first.
Look-ups: one reader, 19 trajectories asked for the first time, with files in the page cache. Scattered: 20 distant turns,
as in a text search, 9 times.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from warehouse import Warehouse, open_warehouse, schema
from warehouse.schema import file_list, literal
from warehouse.search.index import HIT_COLUMNS
from warehouse.upkeep import compact as compaction

ROW_GROUPS = (122_880, 8_192)
"""Rows per Parquet row group: DuckDB's default, and fewer. A look-up decompresses whole groups."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sealed", type=Path, required=True, help="a warehouse that was not compacted; it stays as it is"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="a folder for the forms; those that are there are asked as they are"
    )
    arguments = parser.parse_args()
    compaction.GRACE_SECONDS = 0.0
    builds = {"packs": partial(pack, arguments.sealed, arguments.out / "packs")}
    builds |= {
        f"parquet-{rows}": partial(merge, arguments.sealed, arguments.out / f"parquet-{rows}", rows)
        for rows in ROW_GROUPS
    }
    figures: dict[str, Any] = {}
    for form, build in builds.items():
        figures[form] = {} if (arguments.out / form).exists() else {"build": timed(build)}
        print(json.dumps({form: figures[form]}), flush=True)
    for form, measured in figures.items():
        root = arguments.out / form
        measured["MB"] = round(sum(path.stat().st_size for path in row_files(root)) / 1e6, 1)
        measured |= ask(root)
        print(json.dumps({form: measured}, indent=2), flush=True)


def pack(sealed: Path, root: Path) -> None:
    shutil.copytree(sealed, root)
    compaction.compact(root, everything=True, index=False)


def merge(sealed: Path, root: Path, rows: int) -> None:
    """Merge the sealed segments of each run's tables into one durable Parquet file."""
    shutil.copytree(sealed, root, ignore=shutil.ignore_patterns("*.parquet"))
    with duckdb.connect(":memory:") as con:
        con.execute("SET preserve_insertion_order = true")
        for run in sorted(sealed.glob("runs/*")):
            files = {table: sorted(run.glob(f"sealed/{table}.*.parquet")) for table in schema.LOGGED}
            for table, paths in files.items():
                if not paths or table == "credits":
                    continue
                text = f"FROM read_parquet({file_list(paths)})"
                if table == "turns" and files["credits"]:
                    text = (
                        "SELECT t.* REPLACE (c.shaped AS shaped, c.advantage AS advantage) "
                        f"FROM ({text}) t LEFT JOIN read_parquet({file_list(files['credits'])}) c USING (traj_id, turn) "
                        "ORDER BY traj_id, turn"
                    )
                target = root / run.relative_to(sealed) / "sealed" / paths[0].name
                con.execute(
                    f"COPY ({text}) TO {literal(str(target))} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {rows})"
                )
                with target.open("rb") as file:
                    os.fsync(file.fileno())


def ask(root: Path) -> dict[str, Any]:
    """Return milliseconds of the named queries and of look-ups."""
    with open_warehouse(root) as warehouse:
        names = [
            name
            for name, query in warehouse.queries().items()
            if name != "turn_details" and None not in query.params.values()
        ]
        sample = "SELECT traj_id FROM trajectories USING SAMPLE 20 (reservoir, 7)"
        first, *ids = (row["traj_id"] for row in warehouse.rows(sample))
    views: dict[str, float] = {}
    asks: dict[str, Callable[[Warehouse], object]] = {name: partial(Warehouse.query, name=name) for name in names}
    asks["rescore, gamma 0.9"] = lambda w: w.query("rescore", run="r1", gamma=0.9)
    asks["words in all turns"] = lambda w: w.rows("SELECT count(*) FROM turns WHERE contains(content, 'qzx')")
    for name, question in asks.items():
        drop_cache(root)
        with open_warehouse(root) as warehouse:
            views[name] = round(timed(partial(question, warehouse))["seconds"] * 1000)
    with open_warehouse(root) as warehouse:
        warehouse.query("trajectory", id=first)
        took = [timed(partial(warehouse.query, "trajectory", id=one))["seconds"] * 1000 for one in ids]
        sample = "SELECT traj_id, turn FROM turns USING SAMPLE 200 (reservoir, 9)"
        keys = [(row["traj_id"], row["turn"]) for row in warehouse.rows(sample)]
        far = [timed(partial(warehouse.turns_at, keys[n : n + 20], HIT_COLUMNS)) for n in range(0, 200, 20)][1:]
    return {
        "views_ms": views,
        "views_total_ms": sum(views.values()),
        "lookup_ms": {"median": round(statistics.median(took), 1), "worst": round(max(took), 1)},
        "scattered_ms": {
            "median": round(statistics.median(one["seconds"] for one in far) * 1000, 1),
            "worst": round(max(one["seconds"] for one in far) * 1000, 1),
            "cpu": round(statistics.median(one["cpu"] for one in far) * 1000, 1),
        },
    }


def row_files(root: Path) -> list[Path]:
    return [*root.glob("packs/*.duckdb"), *root.glob("runs/*/sealed/*.parquet")]


def drop_cache(root: Path) -> None:
    for path in row_files(root):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def timed(work: Callable[[], object]) -> dict[str, float]:
    """Return wall seconds, and CPU seconds of all threads."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return {"seconds": round(time.perf_counter() - began, 4), "cpu": round(time.process_time() - cpu, 4)}


if __name__ == "__main__":
    main()
