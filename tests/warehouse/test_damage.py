"""Files that were lost, cut or written over: one sentence that names them, and no row lost by what happens next."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import orjson
import pytest

from tests.makers import raises
from tests.places import ROOT
from tests.warehouse.makers import play
from tests.warehouse.test_compact import counts, some_run
from userrl_core.errors import LogError
from warehouse import TurnLog, maintain, open_warehouse
from warehouse.query.sandbox import ask
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact

TURNS = "SELECT count(*) FROM turns"


def turns(root: Path) -> int:
    with open_warehouse(root) as warehouse:
        return int(warehouse.sql(TURNS).fetchall()[0][0])


def packs(root: Path) -> list[Path]:
    return sorted((root / "packs").iterdir())


def make_packs(root: Path, runs: int = 1) -> None:
    for number in range(1, runs + 1):
        some_run(root, f"r{number}")
        compact(root)


def test_a_lost_manifest_is_reported_by_everyone_and_removes_no_pack(tmp_path: Path) -> None:
    make_packs(tmp_path)
    before, kept = counts(tmp_path), packs(tmp_path)
    (tmp_path / "manifest.json").unlink()
    for read in (turns, compact, lambda root: ask(root, TURNS)):
        with raises("warehouse.damaged", "--repair"):
            read(tmp_path)
    report = check(tmp_path)
    assert [(p.kind, p.repaired) for p in report.problems] == [("manifest", False)]
    assert packs(tmp_path) == kept
    done = maintain(tmp_path)
    assert (done.sound, [p.kind for p in done.report.problems]) == (True, ["manifest"])
    assert counts(tmp_path) == before


def test_a_pack_that_an_older_manifest_does_not_list_is_kept_and_listed_again(tmp_path: Path) -> None:
    make_packs(tmp_path)
    old = (tmp_path / "manifest.json").read_bytes()
    some_run(tmp_path, "r2")
    compact(tmp_path)
    before, kept = counts(tmp_path), packs(tmp_path)
    (tmp_path / "manifest.json").write_bytes(old)
    with raises("warehouse.damaged", "--repair"):
        compact(tmp_path)
    assert packs(tmp_path) == kept
    report = check(tmp_path, repair=True)
    [problem] = report.problems
    assert problem.sentence.endswith("with 15 turns is not in the manifest. It is again.")
    assert (counts(tmp_path), packs(tmp_path)) == (before, kept)


def test_rebuilding_the_manifest_sets_an_unreadable_pack_aside(tmp_path: Path) -> None:
    make_packs(tmp_path, runs=2)
    lost = packs(tmp_path)[0]
    content = lost.read_bytes()[:5000]
    lost.write_bytes(content)
    (tmp_path / "manifest.json").unlink()
    report = check(tmp_path, repair=True)
    assert [(p.kind, p.repaired) for p in report.problems] == [("manifest", True), ("pack", True)]
    assert [path.read_bytes() for path in (tmp_path / "quarantine").iterdir()] == [content]
    assert turns(tmp_path) == 15


def test_sealed_rows_are_not_removed_for_a_pack_that_cannot_be_read(tmp_path: Path) -> None:
    some_run(tmp_path)
    sealed = {path: path.read_bytes() for path in tmp_path.glob("runs/*/sealed/*")}
    compact(tmp_path, index=False)
    for path, content in sealed.items():
        path.write_bytes(content)
    packs(tmp_path)[0].write_bytes(b"no pack")
    with raises("warehouse.damaged"):
        compact(tmp_path)
    assert maintain(tmp_path).sound
    assert counts(tmp_path) == (15, 15, 15, 5, 15, 5, 15)


def cut_pack(root: Path) -> str:
    compact(root, index=False)
    (pack,) = packs(root)
    pack.write_bytes(pack.read_bytes()[:9000])
    return pack.name


def cut_segment(root: Path, table: str = "metrics") -> str:
    path = next(root.glob(f"runs/*/sealed/{table}.*"))
    path.write_bytes(path.read_bytes()[:100])
    return path.name


def list_manifest(root: Path) -> str:
    compact(root, index=False)
    (root / "manifest.json").write_text("[]")
    return "manifest.json"


@pytest.mark.parametrize("harm", [cut_pack, cut_segment, list_manifest])
def test_a_damaged_file_is_named_at_once_and_check_repairs_it(tmp_path: Path, harm: Callable[[Path], str]) -> None:
    some_run(tmp_path)
    name = harm(tmp_path)
    for read in (turns, compact, lambda root: ask(root, TURNS)):
        with pytest.raises(LogError, match="check --repair") as caught:
            read(tmp_path)
        assert caught.value.code == (
            "warehouse.not_compacted" if read is compact and harm is cut_pack else "warehouse.damaged"
        )
        assert name in str(caught.value)
    assert not check(tmp_path).sound
    done = maintain(tmp_path)
    assert done.sound
    assert any(name in problem.sentence for problem in done.report.problems)
    assert check(tmp_path).problems == []
    assert turns(tmp_path) == (0 if harm is cut_pack else 15)


def test_a_damaged_file_under_an_open_reader_is_named_as_well(tmp_path: Path) -> None:
    some_run(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql(TURNS).fetchall() == [(15,)]
        name = cut_segment(tmp_path, "turns")
        with raises("warehouse.damaged", name):
            warehouse.sql("SELECT sum(reward) FROM turns").fetchall()


def test_a_block_that_rotted_is_found_by_check_although_keys_can_be_read(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for n in range(40):
            play(log, [0.0], text="".join(map(chr, range(200 + n, 9000 + n))), step=n)
    compact(tmp_path, index=False)
    (pack,) = packs(tmp_path)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 0xFF
    pack.write_bytes(content)
    report = check(tmp_path, repair=True)
    assert [(p.kind, p.repaired) for p in report.problems] == [("pack", True)]
    assert [path.read_bytes() for path in (tmp_path / "quarantine").iterdir()] == [bytes(content)]


def test_a_wrong_file_in_a_query_is_the_querys_fault(tmp_path: Path) -> None:
    make_packs(tmp_path)
    with open_warehouse(tmp_path) as warehouse, pytest.raises(duckdb.IOException, match="nowhere"):
        warehouse.sql("FROM '/nowhere/at/all.parquet'")


def test_an_empty_format_file_is_a_sentence_and_is_written_again(tmp_path: Path) -> None:
    some_run(tmp_path)
    before = (tmp_path / "FORMAT").read_bytes()
    (tmp_path / "FORMAT").write_bytes(b"")
    with raises("warehouse.damaged", "FORMAT", "--repair"):
        TurnLog.open(tmp_path, "r2")
    assert [(p.kind, p.repaired) for p in check(tmp_path, repair=True).problems] == [("format", True)]
    assert (tmp_path / "FORMAT").read_bytes() == before


def test_one_broken_run_row_hides_no_other(tmp_path: Path) -> None:
    for run in ("r1", "r2", "r3"):
        some_run(tmp_path, run)
    row = orjson.loads((tmp_path / "runs/run=r2/run.json").read_bytes())
    del row["crc"]
    (tmp_path / "runs/run=r1/run.json").write_bytes(b"")
    (tmp_path / "runs/run=r2/run.json").write_bytes(orjson.dumps(row | {"seed": 2**63}))
    with open_warehouse(tmp_path) as warehouse:
        for _ in range(2):
            assert warehouse.sql("SELECT run_id, seed FROM runs ORDER BY 1").fetchall() == [("r2", None), ("r3", None)]
            assert warehouse.sql(TURNS).fetchall() == [(45,)]
        assert warehouse.query("run_status", run="latest").fetchall()[0][0] == "r3"
    problems = [(p.kind, p.repaired) for p in check(tmp_path).problems]
    assert problems == [("run", False), ("run", False)]
    with raises("file.damaged", "run.json"):
        TurnLog.open(tmp_path, "r1")


@pytest.mark.parametrize("seed", [2**63, 2**64, -(2**63) - 1])
def test_a_run_with_a_seed_beyond_its_column_is_refused_by_name(tmp_path: Path, seed: int) -> None:
    with raises("argument.out_of_range", f"seed is {seed}, but the column has type BIGINT"):
        TurnLog.open(tmp_path, "r1", run_fields={"seed": seed})
    TurnLog.open(tmp_path, "r1", run_fields={"seed": 2**63 - 1}).close()


FULL = """
import resource, signal, sys
from pathlib import Path
from userrl_core.errors import LogError
from warehouse.upkeep.compact import compact
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, int(resource.RLIM_INFINITY)))
try:
    compact(Path(sys.argv[1]))
except LogError as error:
    print(error)
"""


def test_a_disk_that_fills_up_during_a_compaction_is_a_sentence_and_keeps_the_sources(tmp_path: Path) -> None:
    some_run(tmp_path)
    out = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert (out.returncode, out.stderr) == (0, "")
    assert "Nothing was lost. Free space" in out.stdout
    assert packs(tmp_path) == []
    assert counts(tmp_path) == (15, 15, 15, 5, 15, 5, 15)
    assert compact(tmp_path).turns == 15


def test_a_text_index_full_of_garbage_is_a_sentence_and_is_rebuilt(tmp_path: Path) -> None:
    make_packs(tmp_path)
    (tmp_path / "search.sqlite").write_bytes(b"garbage" * 1000)
    with open_warehouse(tmp_path) as warehouse:
        with raises("search.no_index"):
            warehouse.search("word3")
        assert compact(tmp_path).indexed == 15
        assert warehouse.search("word3").pl().height == 3


SPILL = """
import os, signal, sqlite3, sys
index = sqlite3.connect(sys.argv[1], isolation_level=None)
index.execute("PRAGMA cache_size = 5")
index.execute("BEGIN IMMEDIATE")
index.executemany("INSERT INTO places VALUES (?, 0, 0)", [(n,) for n in range(1000, 60000)])
index.execute("DELETE FROM segments")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_index_whose_writer_was_killed_in_the_middle_is_searched_as_it_was(tmp_path: Path) -> None:
    some_run(tmp_path)
    compact(tmp_path)
    index = tmp_path / "search.sqlite"
    subprocess.run([sys.executable, "-c", SPILL, str(index)], check=False)
    assert (tmp_path / "search.sqlite-journal").stat().st_size > 0
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        sqlite3.connect(f"file:{index}?mode=ro", uri=True).execute("SELECT * FROM segments").fetchall()
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.search("word3").pl().height == 3
        assert warehouse.unindexed() == 0
