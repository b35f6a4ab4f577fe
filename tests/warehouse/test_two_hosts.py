"""Two hosts with clocks days apart export to one object store through a proxy that fails, while a reader reads.

The hosts are processes with warehouses of their own, in which runs have equal names and numbers. moto's server simulates S3.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
import pytest

from tests.warehouse.makers import play
from tests.warehouse.test_export import s3
from warehouse import TurnLog
from warehouse.upkeep.export import export, home_id
from warehouse.upkeep.exported import exported_objects

__all__ = ["s3"]

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
DAYS = {"a": -400.0, "b": 3.0}
"""Days by which each host's clock is wrong."""
NIGHTS = 3
HOST = """
import json, sys, time
from pathlib import Path
from tests.warehouse.makers import play
from warehouse import TurnLog
from warehouse.upkeep.export import export
root, options, conversations = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
for night in range(int(sys.argv[4])):
    with TurnLog.open(root, "r1") as log:
        for n in range(conversations):
            play(log, [0.0, 1.0], step=night, attempt=n)
    print(json.dumps({"rows": export(root, "s3://bucket/all", options=options).rows, "clock": time.time()}), flush=True)
    with TurnLog.open(root, "r1") as log:
        play(log, [0.5], step=night, attempt=99, end=False)
        sys.stdin.readline()
"""


@contextmanager
def unreliable(target: str, every: int = 10) -> Iterator[tuple[str, list[int]]]:
    """A proxy before an HTTP server that answers every tenth request with 503. Yields its address and the refused requests."""
    numbers, refused = count(1), list[int]()
    address = urlsplit(target).netloc

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if (number := next(numbers)) % every == 0:
                refused.append(number)
                self.answer(503, [], b"")
                return
            onward = http.client.HTTPConnection(address, timeout=60)
            onward.request(self.command, self.path, body, dict(self.headers.items()))
            got = onward.getresponse()
            dropped = ("transfer-encoding", "content-length", "connection", "date", "server")
            headers = [(name, value) for name, value in got.getheaders() if name.lower() not in dropped]
            length = got.getheader("Content-Length") if self.command == "HEAD" else None
            self.answer(got.status, headers, got.read(), length)
            onward.close()

        def answer(self, status: int, headers: list[tuple[str, str]], body: bytes, length: str | None = None) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", refused
    finally:
        server.shutdown()
        server.server_close()


def options_of(url: str) -> dict[str, Any]:
    return {"key": "x", "secret": "x", "client_kwargs": {"endpoint_url": url, "region_name": "eu-west-1"}}


def line(host: subprocess.Popen[str]) -> dict[str, Any]:
    assert host.stdout is not None
    text = host.stdout.readline()
    assert text, "a host ended without an export"
    return dict(json.loads(text))


def read_turns(files: Any) -> pl.DataFrame:
    """All exported turns with their home, as a reader of the store sees them now."""
    files.invalidate_cache()
    objects = files.glob("bucket/all/*/turns/*/*.parquet")
    homes = [name.split("home=")[1].split("/")[0] for name in objects]
    frames = [
        pl.read_parquet(files.open(name)).with_columns(home=pl.lit(home))
        for name, home in zip(objects, homes, strict=True)
    ]
    return pl.concat(frames)


@pytest.mark.slow
def test_two_hosts_export_runs_of_one_name_to_one_store_and_nothing_is_lost_or_doubled(tmp_path: Path, s3: str) -> None:
    s3fs = pytest.importorskip("s3fs", reason="the extra s3 is not installed")
    files = s3fs.S3FileSystem(**options_of(s3))
    files.mkdir("bucket")
    sizes = {"a": 4, "b": 7}
    with unreliable(s3) as (proxy, refused):
        hosts = {}
        for name, conversations in sizes.items():
            clock = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{DAYS[name]:+}d"}
            arguments = [str(tmp_path / name), json.dumps(options_of(proxy)), str(conversations), str(NIGHTS)]
            hosts[name] = subprocess.Popen(
                [sys.executable, "-c", HOST, *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(clock),
            )  # fmt: skip
        clocks = {}
        for night in range(NIGHTS):
            for name, host in hosts.items():
                exported = line(host)
                clocks[name] = exported["clock"]
                assert exported["rows"] > 0
            # Both hosts go on with the next conversation meanwhile.
            turns = read_turns(files)
            seen = {name: turns.filter(home=home_id(tmp_path / name)) for name in sizes}
            for name, conversations in sizes.items():
                done = seen[name].filter(pl.col("attempt") < 99)
                assert done.height == 2 * conversations * (night + 1)
                assert done["reward"].sum() == conversations * (night + 1)
            assert turns.select("home", "traj_id", "turn").is_duplicated().sum() == 0
            if night == 0:
                # Without the home the keys of both hosts are the same.
                assert turns.select("traj_id", "turn").is_duplicated().sum() == 2 * 2 * min(sizes.values())
                half_written(files, home_id(tmp_path / "a"))
            for host in hosts.values():
                assert host.stdin is not None
                host.stdin.write("\n")
                host.stdin.flush()
        assert [host.wait(timeout=240) for host in hosts.values()] == [0, 0]
    assert refused
    if FAKETIME.is_file():
        assert 402 * 86400 < clocks["b"] - clocks["a"] < 404 * 86400


@pytest.mark.slow
def test_an_object_that_was_cut_off_is_named_and_the_others_are_read(tmp_path: Path, s3: str) -> None:
    s3fs = pytest.importorskip("s3fs", reason="the extra s3 is not installed")
    files = s3fs.S3FileSystem(**options_of(s3))
    files.mkdir("cut")
    for night in range(3):
        with TurnLog.open(tmp_path, "r1") as log:
            play(log, [0.0, 1.0], step=night)
        export(tmp_path, "s3://cut/all", options=options_of(s3))
    first, second, third = sorted(files.glob("cut/all/*/turns/*/*.parquet"))
    whole = files.cat(second)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        files.pipe_file(second, whole[:length])
        found = exported_objects("s3://cut/all", "turns", options=options_of(s3))
        assert found.paths == [first, third]
        (sentence,) = found.damaged
        assert sentence.startswith(f"{second} has {length:,} bytes and no end of a Parquet file, so it was cut off. ")
        read = pl.concat([pl.read_parquet(files.open(path)) for path in found.paths])
        assert read["step"].to_list() == [0, 0, 2, 2]
    # The other tables of the same export are whole.
    assert exported_objects("s3://cut/all", "trajectories", options=options_of(s3)).damaged == []


def environment(clock: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **(clock if FAKETIME.is_file() else {})}


def half_written(files: Any, home: str) -> None:
    """Begin an object, as a host that dies during its upload does."""
    where = {"Bucket": "bucket", "Key": f"all/home={home}/turns/run=r1/w00001-000000000900-000000000999.parquet"}
    begun = files.call_s3("create_multipart_upload", **where)
    files.call_s3("upload_part", **where, PartNumber=1, UploadId=begun["UploadId"], Body=b"PAR1half")


def test_a_target_of_an_earlier_version_keeps_its_layout(tmp_path: Path) -> None:
    root, out = tmp_path / "warehouse", tmp_path / "out"
    (out / "runs").mkdir(parents=True)
    with TurnLog.open(root, "r1") as log:
        play(log, [1.0])
    export(root, str(out))
    assert sorted(path.name for path in out.iterdir() if path.name.startswith("home=")) == []
    assert len(list((out / "turns" / "run=r1").iterdir())) == 1


def test_a_warehouse_keeps_its_id_and_two_warehouses_have_other_ids(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = home_id(tmp_path / "a")
    assert home_id(tmp_path / "a") == first
    assert home_id(tmp_path / "b") != first
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["home_id"]
