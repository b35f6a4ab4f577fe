from __future__ import annotations

import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli.warehouse import app
from tests.makers import raises
from tests.ports import free_port
from tests.warehouse.kills import kill_at
from tests.warehouse.makers import play
from tests.warehouse.test_compact import some_run
from warehouse import TurnLog, open_warehouse
from warehouse.upkeep.export import export
from warehouse.upkeep.exported import exported_objects


def ask(text: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as con:
        return con.execute(text).fetchall()


def test_any_engine_reads_the_exported_parquet_as_it_lies(tmp_path: Path) -> None:
    root, out = tmp_path / "warehouse", tmp_path / "out"
    some_run(root, "r1")
    some_run(root, "r2", credit=False)
    done = export(root, str(out))
    assert done.rows == 2 * (15 + 5 + 15 + 5) + 2
    by_duckdb = ask(
        "SELECT run, count(*), sum(reward), count(advantage) "
        f"FROM read_parquet('{out}/*/turns/*/*.parquet', hive_partitioning = true) GROUP BY run ORDER BY run"
    )
    assert by_duckdb == [("r1", 15, 7.5, 15), ("r2", 15, 7.5, 0)]
    by_polars = pl.scan_parquet(f"{out}/*/turns/**/*.parquet", hive_partitioning=True).group_by("run").len().collect()
    assert sorted(by_polars.rows()) == [("r1", 15), ("r2", 15)]
    assert not list(out.rglob("*.part"))


def test_the_query_that_the_export_names_counts_all_turns(tmp_path: Path) -> None:
    root, out = tmp_path / "warehouse", tmp_path / "out"
    some_run(root, "r1")
    printed = CliRunner().invoke(app, ["export", str(out), "--warehouse", str(root)])
    assert printed.exit_code == 0
    assert ask(shlex.split(printed.output.splitlines()[-1])[-1]) == [(15,)]


def test_a_second_export_writes_only_what_is_new(tmp_path: Path) -> None:
    root, out = tmp_path / "warehouse", tmp_path / "out"
    some_run(root, "r1")
    export(root, str(out))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert export(root, str(out)).objects == 0
    with TurnLog.open(root, "r1") as log:
        play(log, [1.0, 0.0], step=9)
    assert export(root, str(out)).rows == 3
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert ask(f"SELECT count(*), count(DISTINCT (traj_id, turn)) FROM '{out}/*/turns/*/*.parquet'") == [(17, 17)]


EXPORT = (
    "from pathlib import Path; from warehouse.upkeep.export import export\n"
    "export(Path(argument, 'warehouse'), argument + '/out', object_rows=4)"
)


def test_a_huge_turn_does_not_overtake_the_turns_before_it(tmp_path: Path) -> None:
    root, out = tmp_path / "warehouse", tmp_path / "out"
    with TurnLog.open(root, "r1") as log:
        play(log, [0.0, 0.5], end=False)
        play(log, [1.0], step=2, text="x" * 2_200_000)  # in message, content and observation
        export(root, str(out))
        play(log, [0.25], step=3)
    export(root, str(out))
    rewards = ask(f"SELECT reward FROM read_parquet('{out}/*/turns/*/*.parquet') ORDER BY ALL")
    assert rewards == [(0.0,), (0.25,), (0.5,), (1.0,)]


def test_an_export_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    root, out = tmp_path / "warehouse", tmp_path / "out"
    some_run(root, "r1")
    kill_at("os.rename", ".parquet", tmp_path, nth=4, code=EXPORT)
    assert len(list(out.rglob("*.parquet"))) == 3
    export(root, str(out), object_rows=4)
    exported = ask(f"SELECT count(*), count(DISTINCT (traj_id, turn)) FROM '{out}/*/turns/*/*.parquet'")
    assert exported == [(15, 15)]


def test_credits_that_came_late_are_exported_beside_their_turns(tmp_path: Path) -> None:
    root, out = tmp_path / "warehouse", tmp_path / "out"
    with TurnLog.open(root, "r1") as log:
        played = play(log, [0.0, 1.0])
    export(root, str(out))
    with TurnLog.open(root, "r1") as log:
        log.credits(played.traj_id or 0, [1.0, 1.0], [0.5, 0.25])
    export(root, str(out))
    joined = ask(
        f"SELECT turn, coalesce(t.advantage, c.advantage) FROM '{out}/*/turns/*/*.parquet' t "
        f"LEFT JOIN '{out}/*/credits/*/*.parquet' c USING (traj_id, turn) ORDER BY turn"
    )
    assert joined == [(1, 0.5), (2, 0.25)]


def test_an_unknown_target_is_named(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    with raises("export.bad_target"):
        export(tmp_path, "nosuch://bucket/x")


@pytest.fixture
def s3() -> Iterator[str]:
    """moto's S3 server on loopback."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 240
    try:
        while True:
            try:
                urllib.request.urlopen(url, timeout=30).close()
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert server.poll() is None, "moto's server ended at once"
                assert time.monotonic() < deadline, "moto's server does not answer"
                time.sleep(0.05)
        yield url
    finally:
        server.terminate()
        server.wait()


def test_an_object_store_takes_the_same_layout(tmp_path: Path, s3: str) -> None:
    s3fs = pytest.importorskip("s3fs", reason="the extra s3 is not installed")
    options = {"key": "x", "secret": "x", "client_kwargs": {"endpoint_url": s3, "region_name": "eu-west-1"}}
    files = s3fs.S3FileSystem(**options)
    files.mkdir("bucket")
    some_run(tmp_path, "r1")
    assert export(tmp_path, "s3://bucket/turns-of-all", options=options).rows == 41
    assert export(tmp_path, "s3://bucket/turns-of-all", options=options).objects == 0
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0], step=9)
    assert export(tmp_path, "s3://bucket/turns-of-all", options=options).rows == 2
    objects = files.glob("bucket/turns-of-all/*/turns/*/*")
    assert len(objects) == 2
    assert all("/run=r1/w0000" in name for name in objects)
    read = pl.concat([pl.read_parquet(files.open(name)) for name in objects])
    with open_warehouse(tmp_path) as warehouse:
        here = warehouse.sql("SELECT sum(reward), count(*) FROM turns").fetchall()
    assert here == [(read["reward"].sum(), read.height)]


def test_the_objects_of_a_folder_are_listed_and_one_that_was_cut_off_is_said(tmp_path: Path) -> None:
    root, out = tmp_path / "warehouse", tmp_path / "out"
    some_run(root, "r1")
    some_run(root, "r2")
    export(root, str(out))
    first, second = sorted(out.glob("*/turns/*/*.parquet"))
    listed = CliRunner().invoke(app, ["objects", str(out)])
    assert (listed.exit_code, listed.stdout.split()) == (0, [str(first), str(second)])
    second.write_bytes(second.read_bytes()[:-4])
    listed = CliRunner().invoke(app, ["objects", str(out)])
    assert (listed.exit_code, listed.stdout.split()) == (1, [str(first)])
    assert listed.stderr.startswith(f"{second} has ")
    with raises("argument.unknown_value"):
        exported_objects(str(out), "turn")
