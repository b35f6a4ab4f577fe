"""A rewind that does not say what it replaces costs no other row: refused when logged, named when read, healed by a repair."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson
import pytest

from tests.makers import raises
from tests.warehouse.makers import play
from userrl_core.errors import LogError
from warehouse import TurnLog, open_warehouse
from warehouse.query.sandbox import ask
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact

TURNS = "SELECT run_id, count(*) FROM turns GROUP BY ALL ORDER BY ALL"


@pytest.mark.parametrize("step", [2**31, -2, 1.5, 1.0, "5", float("nan"), True, [1]])
def test_a_step_that_could_not_be_read_again_is_refused(tmp_path: Path, step: Any) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        with raises("log.misused", "2147483647"):
            log.event("rewind", step=step)
        with raises("log.misused"):
            log.event("rewind", stage=7, step=1)
        log.event("rewind", step=np.int64(3))
        log.event("rewind", step=-1)
        log.event("rewind", step=2**31 - 1)
        log.event("note", step=step)
    assert [problem.kind for problem in check(tmp_path).problems if problem.kind != "values"] == []


def two_runs(root: Path) -> Path:
    """Run `bad` with a rewind that names neither step nor stage, as earlier versions stored some; returns its live file."""
    with TurnLog.open(root, "good") as log:
        play(log, [1.0])
    log = TurnLog.open(root, "bad")
    play(log, [1.0], step=3)
    log.event("rewind", stage="rl-1", step=1)
    play(log, [1.0], step=2)
    live = next(root.glob("runs/run=bad/live/events.*"))
    row = orjson.loads(live.read_bytes())
    del row["crc"]
    log.close()
    for sealed in root.glob("runs/run=bad/sealed/events.*"):
        sealed.unlink()
    live.write_bytes(orjson.dumps(row | {"stage": None, "step": 2**31}) + b"\n")
    return live


def test_other_rows_are_answered_and_the_rewind_is_named(tmp_path: Path) -> None:
    two_runs(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        with pytest.warns(UserWarning, match=r"run=bad.* cannot be read; .*check --repair"):
            rows = warehouse.sql(TURNS).fetchall()
        assert rows == warehouse.sql(TURNS).fetchall() == [("bad", 2), ("good", 1)]
    answer = ask(tmp_path, TURNS)
    assert answer.rows == [["bad", 2], ["good", 1]]
    assert any("run=bad" in note for note in answer.notes)


@pytest.mark.parametrize("packed", [False, True])
def test_a_repair_heals_it_wherever_it_lies(tmp_path: Path, packed: bool) -> None:
    two_runs(tmp_path)
    if packed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compact(tmp_path)
        assert list(tmp_path.glob("packs/*.duckdb"))
    assert "rewinds" in [problem.kind for problem in check(tmp_path).problems]
    assert all(problem.repaired for problem in check(tmp_path, repair=True).problems)
    assert [problem for problem in check(tmp_path).problems if problem.kind != "values"] == []
    with open_warehouse(tmp_path) as warehouse, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warehouse.sql(TURNS).fetchall() == [("bad", 2), ("good", 1)]
        kinds = warehouse.sql("SELECT kind, fields IS NOT NULL FROM events").fetchall()
    assert kinds == [("unreadable rewind", True)]


def test_a_flipped_byte_in_a_live_events_file_costs_no_other_run(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "good") as log:
        play(log, [1.0])
    log = TurnLog.open(tmp_path, "bad")
    log.event("rewind", stage="rl-1", step=1)
    live = next(tmp_path.glob("runs/run=bad/live/events.*"))
    sound = live.read_bytes()
    with open_warehouse(tmp_path) as warehouse, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for first, byte in enumerate((b"\x00", b"\xff", b'"', b"7")):
            for i in range(first, len(sound) - 1, 12):
                live.write_bytes(sound[:i] + byte + sound[i + 1 :])
                try:
                    rows = warehouse.sql(TURNS).fetchall()
                except (duckdb.Error, LogError) as error:
                    raise AssertionError((i, byte)) from error
                assert rows == [("good", 1)]
    live.write_bytes(sound.replace(b'"step":1', b'"s\x00ep":1', 1))
    with open_warehouse(tmp_path) as warehouse, pytest.warns(UserWarning, match="1 lines of .* cannot be read"):
        warehouse.sql(TURNS).fetchall()
    log.close()
