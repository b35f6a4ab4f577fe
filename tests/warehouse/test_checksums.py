"""A changed bit is told as one sentence that names the file, or changes nothing; no row is made of it."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import duckdb
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.archives import unpack
from tests.makers import raises
from tests.warehouse.makers import play
from tests.warehouse.test_compact import some_run
from userrl_core.errors import LogError
from warehouse import TurnLog, open_warehouse
from warehouse.files.checksum import intact, stamped, verified_lines
from warehouse.files.runs import TrialRecord, find_run, read_run, record_trial
from warehouse.query.sandbox import ask
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact
from warehouse.upkeep.maintain import maintain

OBJECTS = st.dictionaries(st.text(max_size=5), st.text(max_size=20), min_size=1, max_size=3).map(orjson.dumps)


@given(OBJECTS, st.data())
def test_an_object_with_a_changed_bit_is_never_taken_for_intact(row: bytes, data: st.DataObject) -> None:
    line = stamped(row[:-1])
    assert intact(line) is True
    assert orjson.loads(line).keys() == orjson.loads(row).keys() | {"crc"}
    assert intact(row) is None
    changed = bytearray(line)
    bit = data.draw(st.integers(0, len(line) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    assert intact(bytes(changed)) is False


@given(st.lists(OBJECTS, min_size=1, max_size=5), st.data())
def test_one_changed_bit_costs_at_most_the_two_lines_beside_it(rows: list[bytes], data: st.DataObject) -> None:
    lines = [stamped(row[:-1]) + b"\n" for row in rows]
    content = bytearray(b"".join(lines))
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    verified = verified_lines(bytes(content))
    assert verified.damaged >= 1
    assert all(line + b"\n" in lines for line in verified.trusted.split(b"\n")[:-1])
    assert verified.trusted.count(b"\n") >= len(lines) - 2


def test_a_last_line_that_lacks_only_its_newline_is_a_row() -> None:
    whole, half = stamped(b'{"a":1'), b'{"a":2'
    verified = verified_lines(whole + b"\n" + whole)
    assert (verified.trusted, verified.damaged, verified.torn_bytes) == ((whole + b"\n") * 2, 0, 0)
    verified = verified_lines(whole + b"\n" + half)
    assert (verified.trusted, verified.damaged, verified.torn_bytes) == (whole + b"\n", 0, len(half))


def test_lines_of_an_earlier_version_are_read_as_before() -> None:
    old = b'{"a":1}\n{"a":2}\n{"a"'
    verified = verified_lines(old)
    assert (verified.trusted, verified.damaged, verified.torn_bytes, verified.checked) == (old[:16], 0, 4, False)


def change(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


def dead_run(root: Path) -> Path:
    """A run whose writer died after three trajectories of one turn; returns its live file of turns."""
    log = TurnLog.open(root.with_name("writer"), "r1")
    for n in range(3):
        play(log, [0.5], text=f"word{n}")
    shutil.copytree(root.with_name("writer"), root)
    log.close()
    return next(root.glob("runs/*/live/turns.*"))


def test_a_changed_line_is_named_left_out_and_kept_in_quarantine(tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    live = dead_run(root)
    change(live, b'"word1"', b'"wore1"')
    changed = live.read_bytes()
    sentence = f"Live file run=r1/{live.name}: 1 lines fail their checksum."
    assert ("lines", sentence, False) in [(p.kind, p.sentence, p.repaired) for p in check(root).problems]
    done = maintain(root)
    assert any(p.sentence.startswith(sentence) and p.repaired for p in done.report.problems)
    with open_warehouse(root) as warehouse:
        assert warehouse.sql("SELECT content FROM turns ORDER BY 1").fetchall() == [("word0",), ("word2",)]
    assert [path.read_bytes() for path in (root / "quarantine").iterdir()] == [changed]


def test_a_compaction_that_leaves_lines_out_says_so(tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    change(dead_run(root), b'"word1"', b'"wore1"')
    assert compact(root).damaged == 1
    assert len(list((root / "quarantine").iterdir())) == 1


def test_a_changed_sealed_file_is_named_and_not_packed(tmp_path: Path) -> None:
    some_run(tmp_path)
    path = next(tmp_path.glob("runs/*/sealed/metrics.*"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with raises("warehouse.damaged", f"{path.name} fails its checksum", "check --repair"):
        compact(tmp_path)
    assert [(p.kind, path.name in p.sentence) for p in check(tmp_path).problems] == [("segment", True)]
    assert maintain(tmp_path).sound
    assert [kept.read_bytes() for kept in (tmp_path / "quarantine").iterdir()] == [bytes(content)]


@pytest.mark.slow
def test_a_changed_bit_in_the_footer_of_a_sealed_file_is_a_sentence_with_and_without_a_checksum(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", stage="rl-1", step=1)
    (path,) = tmp_path.glob("runs/run=r1/sealed/events.*")
    whole = path.read_bytes()
    earlier = re.sub(rb"userrl-crc32.{4}", b"", whole, flags=re.DOTALL)
    for sound in (whole, earlier):
        footer = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
        names = [sound.index(name, footer) for name in (b"run_id", b"kind", b"step", b"incarnation", b"userrl_schema")]
        for at in (*names, len(sound) - 6, len(sound) - 1, *range(footer, len(sound), 149)):
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
            problems = check(tmp_path).problems
            assert len(problems) == 1 or sound is earlier, at
            assert all(problem.sentence.count("\n") == 0 for problem in problems)


def test_a_rotten_block_of_a_pack_is_one_sentence_that_names_the_pack_for_all_who_read_it(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for n in range(40):
            play(log, [0.5] * 5, step=n, text=f"word{n} {hashlib.sha256(bytes([n])).hexdigest() * 8}")
    compact(tmp_path)
    [pack] = (tmp_path / "packs").iterdir()
    with duckdb.connect(str(pack), read_only=True) as con:
        ((block,),) = con.execute(
            "SELECT any_value(block_id) FROM pragma_storage_info('turns') WHERE column_name = 'message' AND block_id >= 0"
        ).fetchall()
        ((size,),) = con.execute("SELECT block_size FROM pragma_database_size() WHERE block_size > 0").fetchall()
    rotten = bytearray(pack.read_bytes())
    rotten[3 * 4096 + block * size + size // 4] ^= 1  # three headers, then blocks
    pack.write_bytes(rotten)
    everything = "SELECT bit_xor(hash(t)) FROM turns t"
    some_run(tmp_path, "r2")
    told = rf"[^\n]*{pack.name} is damaged[^\n]*check --repair[^\n]*"
    for read in (
        lambda: open_warehouse(tmp_path).sql(everything).fetchall(),
        lambda: open_warehouse(tmp_path).turns_at([(1 << 40 | 1 << 24 | 21, 1)], ["message"]),
        lambda: ask(tmp_path, everything),
        lambda: compact(tmp_path, many_small_packs=1),
    ):
        with pytest.raises(LogError) as caught:
            read()
        assert re.fullmatch(told, str(caught.value))
    assert [(p.kind, pack.name in p.sentence) for p in check(tmp_path).problems] == [("pack", True)]
    assert maintain(tmp_path).sound
    assert [path.read_bytes() for path in (tmp_path / "quarantine").iterdir()] == [bytes(rotten)]
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT DISTINCT run_id FROM turns").fetchall() == [("r2",)]


@pytest.mark.parametrize("name", ["FORMAT", "manifest.json", "runs/run=r1/run.json", "trials/s.jsonl"])
def test_a_changed_letter_in_a_small_file_is_named(tmp_path: Path, name: str) -> None:
    some_run(tmp_path)
    compact(tmp_path)
    record_trial(tmp_path, TrialRecord("s", 1))
    change(tmp_path / name, b'"crc":"', b'"x":1,"crc":"')
    assert any(name in problem.sentence for problem in check(tmp_path).problems)


RUNS = "SELECT run_id, name, seed FROM runs ORDER BY ALL"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0])
def test_a_changed_bit_in_the_row_of_a_run_is_named_by_every_query_and_by_the_check(
    tmp_path: Path, share: float
) -> None:
    for run in ("r1", "r2"):
        TurnLog.open(tmp_path, run, run_fields={"name": f"name of {run}", "seed": 1}).close()
    path = tmp_path / "runs" / "run=r1" / "run.json"
    content = bytearray(path.read_bytes())
    content[int(share * (len(content) - 1))] ^= 1
    path.write_bytes(content)
    told = r"run=r1/run\.json cannot be read.*\. Restore it from a backup.*\. The row of this run is left out\.$"
    with open_warehouse(tmp_path) as warehouse:
        with pytest.warns(UserWarning, match=told):
            assert warehouse.sql(RUNS).fetchall() == [("r2", "name of r2", 1)]
        assert warehouse.sql(RUNS).fetchall() == [("r2", "name of r2", 1)]
    answer = ask(tmp_path, RUNS)
    assert answer.rows == [["r2", "name of r2", 1]]
    [note] = answer.notes
    assert re.search(told, note)
    [problem] = check(tmp_path).problems
    assert (problem.kind, "run=r1/run.json cannot be read" in problem.sentence) == ("run", True)


def test_a_run_whose_row_was_changed_is_refused_by_its_id_and_named_beside_another(tmp_path: Path) -> None:
    for run in ("r1", "r2"):
        TurnLog.open(tmp_path, run, run_fields={"name": "cook"}).close()
    change(tmp_path / "runs" / "run=r2" / "run.json", b'"cook"', b'"book"')
    with raises("file.damaged", "r2/run.json"):
        find_run(tmp_path, "r2")
    for name in ("latest", "cook"):
        with pytest.warns(UserWarning, match=r"run=r2/run\.json cannot be read .* is left out\.$"):
            assert find_run(tmp_path, name)["run_id"] == "r1"


def test_a_row_that_names_another_run_is_refused(tmp_path: Path) -> None:
    TurnLog.open(tmp_path, "r1").close()
    path = tmp_path / "runs" / "run=r1" / "run.json"
    row = orjson.loads(path.read_bytes())
    del row["crc"]
    path.write_bytes(orjson.dumps(row | {"run_id": "r3"}))
    with raises("file.damaged", "r1/run.json"):
        TurnLog.open(tmp_path, "r1")


def test_a_row_without_a_checksum_is_read_and_gets_one_from_a_repair(tmp_path: Path) -> None:
    unpack(Path(__file__).parent / "data" / "schema1.tar.gz", tmp_path)
    paths = sorted(tmp_path.glob("runs/*/run.json"))
    rows = [read_run(path.parent) for path in paths]
    assert [intact(path.read_bytes()) for path in paths] == [None, None, None]
    report = check(tmp_path, repair=True)
    sentence = "3 run.json of an earlier version had no checksum; they have one now."
    assert (sentence, True) in [(p.sentence, p.repaired) for p in report.problems]
    assert [intact(path.read_bytes()) for path in paths] == [True, True, True]
    assert [read_run(path.parent) for path in paths] == rows


def test_what_an_earlier_version_wrote_is_read_and_counted_as_unchecked(tmp_path: Path) -> None:
    unpack(Path(__file__).parent / "data" / "schema2.tar.gz", tmp_path)
    report = check(tmp_path)
    assert (report.sound, report.unchecked > 5) == (True, True)
    compact(tmp_path, everything=True)
    assert check(tmp_path).sound
