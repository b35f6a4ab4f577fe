"""Values and lines that are larger than what they go into, and short writes."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from tests.warehouse.makers import make_task, make_turn, play
from userrl_core.records import Trajectory
from warehouse import TurnLog, open_warehouse, schema
from warehouse.files.encode import fitting
from warehouse.files.layout import LIVE_LINE_BYTES
from warehouse.files.runs import TrialRecord, record_trial
from warehouse.files.seal import NULLED
from warehouse.query.sandbox import ask
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact

TOKENS = "SELECT turn, prompt_tokens, token_ids, content FROM turns ORDER BY turn"


def play_with(log: TurnLog, **fields: object) -> None:
    trajectory = Trajectory(make_task(), 0, 4, 1)
    log.begin(trajectory)
    for number in (1, 2):
        turn = make_turn(number, 1.0)
        for name, value in fields.items() if number == 1 else ():
            setattr(turn, name, value)
        log.turn(trajectory, turn)


def test_a_number_beyond_its_column_is_null_live_sealed_and_packed_and_nothing_else_is_lost(tmp_path: Path) -> None:
    log = TurnLog.open(tmp_path, "r1")
    play_with(log, prompt_tokens=3_000_000_000, token_ids=[7, 2**40])
    expected = [(1, None, [7, None], "hello"), (2, 10, [1, 2, 2], "hello")]
    with open_warehouse(tmp_path) as warehouse:
        assert [row[:2] for row in warehouse.sql(TOKENS).fetchall()] == [row[:2] for row in expected]
        log.close()
        assert not list((tmp_path / "runs/run=r1/live").iterdir())
        assert warehouse.sql(TOKENS).fetchall() == expected
        report = check(tmp_path)
        assert [(p.kind, "2 values" in p.sentence) for p in report.problems if p.kind == "values"] == [("values", True)]
        compact(tmp_path)
        assert warehouse.sql(TOKENS).fetchall() == expected


def test_what_a_dead_writer_left_is_counted_when_it_does_not_fit(tmp_path: Path) -> None:
    TurnLog.open(tmp_path, "r1").close()
    live = tmp_path / "runs/run=r1/live/turns.00001.000001.jsonl"
    live.write_text(
        '{"traj_id":1,"turn":1,"run_id":"r1","flags":4e9}\nno json\n{"traj_id":1,"turn":2,"gym":5,"reward":"x"}\n'
    )
    done = compact(tmp_path)
    assert (done.recovered, done.torn_bytes, done.nulled) == (1, 8, 2)
    with open_warehouse(tmp_path) as warehouse:
        rows = warehouse.sql("SELECT turn, flags, gym, reward FROM turns ORDER BY 1").fetchall()
    assert rows == [(1, None, None, None), (2, None, "5", None)]


def test_a_sealed_segment_says_how_many_values_did_not_fit(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play_with(log, completion_tokens=-(2**31) - 1)
    (path,) = tmp_path.glob("runs/run=r1/sealed/turns.*")
    metadata = pq.read_schema(path).metadata
    assert (metadata[NULLED], int(metadata[b"userrl_schema"])) == (b"1", schema.version())


@pytest.mark.parametrize("bits", [31, 63])
def test_the_first_and_last_whole_numbers_that_fit(bits: int) -> None:
    kind = {31: "INTEGER", 63: "BIGINT"}[bits]
    values = [-(2**bits) - 1, -(2**bits), 2**bits - 1, 2**bits]
    assert [fitting({"a": kind}, {"a": value})[0]["a"] for value in values] == [None, *values[1:3], None]


@given(st.integers(-(2**70), 2**70))
def test_whole_numbers_are_kept_exactly_where_they_fit_and_null_elsewhere(value: int) -> None:
    types = {"a": "INTEGER", "b": "BIGINT", "c": "INTEGER[]"}
    small, big = -(2**31) <= value < 2**31, -(2**63) <= value < 2**63
    row, nulled = fitting(types, {"a": value, "b": value, "c": [value, 1], "d": 1})
    assert row == {"a": value if small else None, "b": value if big else None, "c": [value if small else None, 1]}
    assert nulled == 2 * (not small) + (not big)


def without_a_folder_to_seal_into(root: Path, segment_rows: int = 5_000) -> TurnLog:
    log = TurnLog.open(root, "r1", segment_rows=segment_rows)
    (root / "runs/run=r1/sealed").rmdir()
    (root / "runs/run=r1/sealed").write_text("a file where a folder should be")
    return log


def test_a_log_whose_thread_cannot_seal_says_so_when_it_is_closed(tmp_path: Path) -> None:
    log = without_a_folder_to_seal_into(tmp_path)
    play(log, [1.0])
    with raises("log.cannot_write"):
        log.close()
    (tmp_path / "runs/run=r1/sealed").unlink()
    compact(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT count(*) FROM turns").fetchall() == [(1,)]


def test_a_writer_does_not_wait_for_ever_for_a_thread_that_failed(tmp_path: Path) -> None:
    log = without_a_folder_to_seal_into(tmp_path, segment_rows=1)
    with raises("log.cannot_write"):
        play(log, [0.0] * 20)
    log.close()


def test_a_line_too_long_for_a_live_file_is_sealed_at_once_and_read_at_once(tmp_path: Path) -> None:
    texts = ["x" * (LIVE_LINE_BYTES // 3), "y" * LIVE_LINE_BYTES]
    with TurnLog.open(tmp_path, "r1") as log:
        for text in texts:
            play(log, [1.0], text=text, end=False)
        # The line before it too: no segment is readable before an earlier one of its writer.
        assert len(list(tmp_path.glob("runs/*/sealed/turns.*"))) == 2
        with open_warehouse(tmp_path) as warehouse:
            assert warehouse.sql("SELECT content FROM turns ORDER BY traj_id").fetchall() == [(t,) for t in texts]
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT content FROM turns ORDER BY traj_id").fetchall() == [(t,) for t in texts]


def test_untrusted_queries_of_many_live_runs_fit_into_little_memory_on_many_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 256)
    logs = [TurnLog.open(tmp_path, f"r{n}") for n in range(8)]
    for log in logs:
        play(log, [1.0])
    count = "SELECT count(*) AS n FROM turns t JOIN trajectories USING (traj_id)"
    assert ask(tmp_path, count, memory=10**9).rows == [[8]]
    for log in logs:
        log.close()


def test_a_torn_record_of_a_trial_costs_no_later_one(tmp_path: Path) -> None:
    record_trial(tmp_path, TrialRecord("s", 0))
    with (tmp_path / "trials/s.jsonl").open("ab") as file:
        file.write(b'{"study":"s","number":1,"sta')
    record_trial(tmp_path, TrialRecord("s", 1, state="complete", value=1.0))
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT number, state FROM trials ORDER BY 1").fetchall() == [
            (0, "running"),
            (1, "complete"),
        ]


def test_a_record_of_a_trial_waits_for_the_one_that_is_written(tmp_path: Path) -> None:
    record_trial(tmp_path, TrialRecord("s", 0))
    with (tmp_path / "trials/s.jsonl").open("ab") as other, ThreadPoolExecutor() as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        second = pool.submit(record_trial, tmp_path, TrialRecord("s", 1))
        with pytest.raises(TimeoutError):
            second.result(timeout=0.3)
        fcntl.flock(other, fcntl.LOCK_UN)
        second.result()


def test_a_short_write_of_a_trial_is_finished_and_a_failed_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
        record_trial(tmp_path, TrialRecord("s", 0, state="complete", value=0.5))
    content = (tmp_path / "trials/s.jsonl").read_bytes()

    def full(fd: int, data: bytes) -> int:
        write(fd, data[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with raises("log.cannot_write"):
            record_trial(tmp_path, TrialRecord("s", 1))
    assert (tmp_path / "trials/s.jsonl").read_bytes() == content
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT number, value FROM trials").fetchall() == [(0, 0.5)]
