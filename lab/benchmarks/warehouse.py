"""The warehouse at the size of a full paper run: four million turns, logged, packed, indexed and queried.

    python -m lab.benchmarks.warehouse --turns 4000000 --writers 2 --out figures.json

Everything uses the product's own path (TurnLog in separate processes, compactor, readers). The same run measures the
limits of the machine: Arrow IPC, Parquet, DuckDB bulk insert, sqlite, JSONL. Synthetic turns have about 870 bytes of text
from a Zipf vocabulary, with fixed seeds. Queries are cold: a new reader per query, and files dropped from the page cache
if the system allows it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

WRITER = (sys.executable, "-m", "lab.benchmarks.warehouse")
GYMS = ("travel", "turtle", "function", "tau", "persuade")
GROUP, BATCH = 8, 16


def write(root: Path, run: str, writer: int, turns: int) -> None:
    """Run one writer process: whole groups, steps spread over the run, credits at the end of each step."""
    from userrl_core.records import ModelCall, Phase, RolloutContext, Task, Trajectory, Turn
    from warehouse import TurnLog

    draw = random.Random(writer)
    vocabulary = [
        "".join(draw.choices("aabcdeeefghiijklmnoopqrsttuvwxyz", k=draw.randint(2, 9))) for _ in range(20_000)
    ]
    weights = [1 / (rank + 1) for rank in range(len(vocabulary))]
    pool = [" ".join(draw.choices(vocabulary, weights, k=12)) for _ in range(20_000)]
    clock, wall = time.thread_time, time.perf_counter
    # What it costs to look at the clocks, which is no part of the log call.
    empty_cpu, empty_wall, looks = 0.0, 0.0, 100_000
    for _ in range(looks):
        start, since = clock(), wall()
        empty_cpu, empty_wall = empty_cpu + clock() - start, empty_wall + wall() - since
    empty_cpu, empty_wall = empty_cpu / looks, empty_wall / looks
    log = TurnLog.open(root, run, run_fields={"name": "benchmark", "recipe": "equalized-r2g", "seed": 1})
    spent, waited, turn_count, step, calls = 0.0, 0.0, 0, 0, 0
    while turn_count < turns:
        step += 1
        phase: Phase = "evaluate" if step % 10 == 0 else "distill" if step % 10 == 1 else "train"
        done = []
        for task_no in range(BATCH):
            gym = GYMS[task_no % len(GYMS)]
            task = Task(gym, f"{writer}-{step}-{task_no}", "test" if phase == "evaluate" else "train", {"n": task_no})
            for attempt in range(GROUP):
                t = Trajectory(
                    task, attempt, 16, step, RolloutContext("rl-1", step, phase, "model"), f"{writer}/{step}/{task_no}"
                )
                start, since = clock(), wall()
                log.begin(t)
                spent, waited = spent + clock() - start, waited + wall() - since
                for number in range(1, draw.randint(4, 12) + 1):
                    thought, content = draw.choice(pool) + " " + draw.choice(pool), draw.choice(pool)
                    observation = " ".join(draw.choices(pool, k=3))
                    call = (
                        f'{thought}\n<tool_call>{{"name": "interact_with_env", "arguments": "{content}"}}</tool_call>'
                    )
                    reward = draw.choice((0.0, 0.0, 0.25, 1.0))
                    turn = Turn(number, "action", content, thought, call, observation, reward, 0, 900, 60, 0.4, 0.2)
                    if number == 2:
                        turn.model_calls.append(ModelCall("user", "gpt-4o", 900, 60, 0.5, 1, 0.003))
                    t.turns.append(turn)
                    start, since = clock(), wall()
                    log.turn(t, turn)
                    spent, waited = spent + clock() - start, waited + wall() - since
                turn_count += len(t.turns)
                calls += len(t.turns) + 2
                t.score, t.stop_reason = t.turns[-1].reward, "success" if t.turns[-1].reward == 1.0 else "horizon"
                start, since = clock(), wall()
                log.end(t)
                spent, waited = spent + clock() - start, waited + wall() - since
                done.append(t)
        if phase == "train":
            for t in done:
                size = len(t.turns)
                log.credits(t.traj_id or 0, [1.0] * size, [draw.gauss(0, 1)] * size)
    log.close()
    spent, waited = spent - calls * empty_cpu, waited - calls * empty_wall
    print(json.dumps({"turns": turn_count, "cpu_us": spent / turn_count * 1e6, "wall_us": waited / turn_count * 1e6}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=4_000_000)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--root", type=Path, help="keep the warehouse in this folder")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    parser.add_argument("--write", nargs=2, metavar=("RUN", "WRITER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.root, arguments.write[0], int(arguments.write[1]), arguments.turns)
        return
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(arguments.root or Path(folder), arguments.turns, arguments.writers)
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))


def measure(root: Path, turns: int, writers: int) -> dict[str, Any]:
    from warehouse import open_warehouse
    from warehouse.files.layout import Manifest
    from warehouse.search.index import INDEX, update_index
    from warehouse.upkeep.compact import compact

    figures: dict[str, Any] = {"machine": machine(), "turns": turns, "writers": writers}
    start = time.perf_counter()
    command = [*WRITER, "--root", str(root), "--turns", str(turns // writers), "--write", "r1"]
    processes = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(writers)]
    writers_figures = [json.loads(process.communicate()[0]) for process in processes]
    figures["writing"] = {
        "seconds": round(time.perf_counter() - start, 1),
        "turns": sum(figures_of_writer["turns"] for figures_of_writer in writers_figures),
        "log_cpu_us_per_turn": round(
            statistics.mean(figures_of_writer["cpu_us"] for figures_of_writer in writers_figures), 2
        ),
        "log_wall_us_per_turn": round(
            statistics.mean(figures_of_writer["wall_us"] for figures_of_writer in writers_figures), 2
        ),
        "load_average": round(os.getloadavg()[0], 1),
    }
    report(figures["writing"])
    sealed = list(root.glob("runs/*/sealed/*.parquet"))
    figures["sealed"] = {"files": len(sealed), "MB": round(sum(p.stat().st_size for p in sealed) / 1e6, 1)}
    figures["limits"] = limits(sorted(root.glob("runs/*/sealed/turns.*.parquet"))[: max(1, 500_000 // 5_000)])
    report(figures["limits"])
    done = compact(root, everything=True, index=False)
    packs = Manifest.read(root).packs
    rate = done.turns / done.seconds
    figures["packing"] = {
        "seconds": round(done.seconds, 1),
        "turns_per_second": round(rate),
        "share_of_duckdb_bulk_insert": round(rate / figures["limits"]["duckdb_insert_zstd"], 2),
        "packs": len(packs),
        "MB": round(sum(pack["bytes"] for pack in packs.values()) / 1e6, 1),
    }
    report(figures["packing"])
    start = time.perf_counter()
    with open_warehouse(root) as warehouse:
        update_index(root, warehouse.turns_beyond)
    figures["index"] = {
        "seconds": round(time.perf_counter() - start, 1),
        "MB": round((root / INDEX).stat().st_size / 1e6, 1),
    }
    report(figures["index"])
    figures["queries_ms"] = queries(root)
    figures["agreement"] = agreement(root)
    return figures


def limits(files: list[Path]) -> dict[str, int]:
    """Return rows per second of the turns table written in other formats, by one process."""
    import duckdb
    import orjson
    import pyarrow as pa
    import pyarrow.parquet as pq

    from warehouse.schema import tables

    table = pa.concat_tables([pq.read_table(file) for file in files])
    few = table.slice(0, 100_000).to_pylist()
    figures: dict[str, int] = {}
    shape = ", ".join(
        f"{c.name} {c.type}{' USING COMPRESSION zstd' if c.type == 'VARCHAR' else ''}"
        for c in tables()["turns"].columns.values()
    )
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)

        def arrow_ipc() -> None:
            with pa.OSFile(str(base / "ipc"), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table)

        def parquet() -> None:
            pq.write_table(table, base / "parquet", compression="zstd", compression_level=1)
            fd = os.open(base / "parquet", os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

        def duckdb_insert(clause: str) -> Callable[[], None]:
            def insert() -> None:
                with duckdb.connect(str(base / f"{len(clause)}.duckdb")) as con:
                    con.execute("SET checkpoint_threshold = '256MB'" if clause else "SELECT 1")
                    con.execute(
                        f"CREATE TABLE turns ({shape if clause else shape.replace(' USING COMPRESSION zstd', '')})"
                    )
                    con.register("given", table)
                    con.execute("INSERT INTO turns FROM given")
                    con.execute("CHECKPOINT")

            return insert

        def sqlite() -> None:
            with sqlite3.connect(base / "sqlite") as con:
                con.execute(f"CREATE TABLE turns ({', '.join(table.column_names)})")
                marks = ", ".join("?" * len(table.column_names))
                con.executemany(f"INSERT INTO turns VALUES ({marks})", [tuple(row.values()) for row in few])

        def jsonl() -> None:
            with (base / "jsonl").open("wb") as file:
                for row in few:
                    file.write(orjson.dumps(row) + b"\n")
                    file.flush()

        for name, work, rows in [
            ("arrow_ipc", arrow_ipc, len(table)),
            ("parquet_zstd_fsync", parquet, len(table)),
            ("duckdb_insert_default", duckdb_insert(""), len(table)),
            ("duckdb_insert_zstd", duckdb_insert("zstd"), len(table)),
            ("sqlite_executemany", sqlite, len(few)),
            ("jsonl_flush_per_turn", jsonl, len(few)),
        ]:
            start = time.perf_counter()
            work()
            figures[name] = round(rows / (time.perf_counter() - start))
    return figures


def queries(root: Path) -> dict[str, float]:
    """Return milliseconds of each named query, cold. Opening the warehouse is excluded, its first reads are included."""
    from warehouse import open_warehouse

    figures: dict[str, float] = {}
    with open_warehouse(root) as warehouse:
        ids = [
            row[0]
            for row in warehouse.sql("SELECT traj_id FROM trajectories USING SAMPLE 20 (reservoir, 7)").fetchall()
        ]
        names = [
            name
            for name, query in warehouse.queries().items()
            if None not in query.params.values() and name != "turn_details"
        ]
        two_words = warehouse.sql("SELECT content FROM turns LIMIT 1").fetchall()[0][0].split()[:2]

    def cold(name: str, ask: Callable[[Any], Any]) -> None:
        drop_cache(root)
        with open_warehouse(root) as warehouse:
            start = time.perf_counter()
            ask(warehouse)
            figures[name] = round((time.perf_counter() - start) * 1000, 1)
        report({name: figures[name]})

    for name in names:
        cold(name, methodcaller("query", name))
    cold("rescore_trajectories, gamma 0.9", lambda w: w.query("rescore_trajectories", run="r1", gamma=0.9))
    cold("rescore, equalized, gamma 0.9", lambda w: w.query("rescore", run="r1", gamma=0.9))
    cold("rescore, r2g, gamma 0.9", lambda w: w.query("rescore", run="r1", shaping="r2g", gamma=0.9))
    cold("search, one word", lambda w: w.search(two_words[0]))
    cold("search, phrase", lambda w: w.search(f'"{" ".join(two_words)}"'))
    cold("one trajectory, first", lambda w: w.query("trajectory", id=ids[0]))
    figures |= lookups(root, ids)
    return figures


def lookups(root: Path, ids: list[int]) -> dict[str, float]:
    """Return median milliseconds of trajectory look-ups by id and of searches."""
    from warehouse import open_warehouse

    figures: dict[str, float] = {}

    def median(name: str, asks: list[Callable[[], Any]]) -> None:
        took = []
        for ask in asks:
            start = time.perf_counter()
            ask()
            took.append((time.perf_counter() - start) * 1000)
        figures[name] = round(statistics.median(took), 1)
        report({name: figures[name]})

    for name in ("from the disk", "from the page cache"):
        with open_warehouse(root) as warehouse:
            asks: list[Callable[[], Any]] = [partial(warehouse.query, "trajectory", id=traj_id) for traj_id in ids]
            asks[0]()
            median(f"one trajectory, {name}, median", asks[1:])
            if name == "from the page cache":
                median("one trajectory, asked again, median", asks[1:])
    with open_warehouse(root) as warehouse:
        contents = warehouse.sql(
            "FROM (SELECT content FROM turns WHERE turn = 2) USING SAMPLE 20 (reservoir, 5)"
        ).fetchall()
        word_lists = [content.split() for (content,) in contents]
        for name, texts in (
            ("one word", [some[3] for some in word_lists]),
            ("two words", [f"{some[2]} {some[3]}" for some in word_lists]),
            ("phrase of two words", [f'"{some[2]} {some[3]}"' for some in word_lists]),
            ("phrase of four words", [f'"{" ".join(some[2:6])}"' for some in word_lists]),
        ):
            asks = [partial(warehouse.search, text) for text in texts]
            median(f"search, {name}, median of {len(texts)} not asked before", asks)
            median(f"search, {name}, asked again", asks)
    return figures


def agreement(root: Path, groups: int = 128) -> dict[str, Any]:
    """Compare re-scoring in SQL with `userrl_core.rewards` on some groups, under another gamma."""
    from userrl_core.rewards import turn_advantages
    from warehouse import open_warehouse

    figures: dict[str, Any] = {}
    with open_warehouse(root) as warehouse:
        rows = warehouse.sql(
            "WITH chosen AS (SELECT DISTINCT step, group_id FROM trajectories WHERE phase = 'train' "
            f"ORDER BY hash(step, group_id) LIMIT {groups}) "
            "SELECT u.traj_id, concat(u.step, u.group_id), list(u.reward ORDER BY u.turn), "
            "list(u.completion_tokens ORDER BY u.turn) "
            "FROM turns u SEMI JOIN chosen USING (step, group_id) WHERE u.phase = 'train' GROUP BY ALL ORDER BY u.traj_id"
        ).fetchall()
        ids = ", ".join(str(row[0]) for row in rows)
        figures["trajectories"] = len(rows)
        for shaping in ("equalized", "r2g"):
            mine = turn_advantages(
                [row[2] for row in rows],
                [row[1] for row in rows],
                turn_tokens=[row[3] for row in rows],
                shaping=shaping,
                gamma=0.9,
            )
            theirs = warehouse.sql(
                f"SELECT list(advantage ORDER BY turn) FROM rescore('r1', with_shaping := '{shaping}', with_gamma := 0.9) "
                f"WHERE traj_id IN ({ids}) GROUP BY traj_id ORDER BY traj_id"
            ).fetchall()
            gaps = [
                abs(a - b) for row, (other,) in zip(mine, theirs, strict=True) for a, b in zip(row, other, strict=True)
            ]
            figures[f"largest difference, {shaping}"] = max(gaps)
    report(figures)
    return figures


def drop_cache(root: Path) -> None:
    if hasattr(os, "posix_fadvise"):
        for path in [*root.glob("packs/*"), *root.glob("search.sqlite")]:
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def machine() -> dict[str, Any]:
    import duckdb

    return {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version(), "duckdb": duckdb.__version__}


def report(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
