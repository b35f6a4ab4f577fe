from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.archives import unpack
from tests.makers import raises
from tests.warehouse.makers import play
from warehouse import TurnLog, open_warehouse, schema
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact

DATA = Path(__file__).parent / "data"

COUNTS = """
    SELECT run_id, count(*), count(advantage), sum(reward) FROM turns GROUP BY run_id ORDER BY run_id
"""
EXPECTED = [("live", 8, 8, 2.0), ("packed", 8, 8, 2.0), ("sealed", 8, 8, 2.0)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A warehouse that schema 1 wrote: one run packed, one sealed, one whose writer was killed."""
    unpack(DATA / "schema1.tar.gz", tmp_path)
    return tmp_path


def test_a_warehouse_of_schema_1_opens_with_new_columns_null(old: Path) -> None:
    assert orjson.loads((old / "FORMAT").read_bytes()) == {"schema": 1}
    with open_warehouse(old) as warehouse:
        assert warehouse.sql(COUNTS).fetchall() == EXPECTED
        assert warehouse.sql("SELECT count(*), count(started_at) FROM trajectories").fetchall() == [(12, 0)]
        assert warehouse.sql("SELECT count(*) FROM demonstrations").fetchall() == [(0,)]
        for name in warehouse.queries():
            if None not in warehouse.queries()[name].params.values():
                warehouse.query(name)


def test_old_and_new_rows_live_together_and_are_packed_together(old: Path) -> None:
    with TurnLog.open(old, "live") as log:
        demonstration = play(log, [1.0], phase="distill", stage="distill")
        log.demonstrations([demonstration.traj_id or 0])
    assert orjson.loads((old / "FORMAT").read_bytes())["schema"] == schema.version()
    done = compact(old, many_small_packs=1)
    assert len(done.merged) == 1
    with open_warehouse(old) as warehouse:
        assert warehouse.sql(COUNTS).fetchall() == [("live", 9, 8, 3.0), *EXPECTED[1:]]
        assert warehouse.sql("SELECT count(*), count(started_at) FROM trajectories").fetchall() == [(13, 1)]
        assert warehouse.sql("SELECT rank FROM demonstrations").fetchall() == [(1,)]
    assert check(old).sound


def test_audited_users_live_in_a_warehouse_of_schema_1_and_are_packed(old: Path) -> None:
    with open_warehouse(old) as warehouse:
        assert warehouse.sql("SELECT count(*) FROM user_features").fetchall() == [(0,)]
        assert warehouse.query("user_report").fetchall() == []
        traj_id = warehouse.sql("SELECT max(traj_id) FROM trajectories WHERE run_id = 'live'").fetchall()[0][0]
    for words in (2.0, 3.5):
        with TurnLog.open(old, "live", join=1) as log:
            log.user_features([{"traj_id": traj_id, "words_per_turn": words, "suspect": "[]", "user_error": False}])
    compact(old, many_small_packs=1)
    with open_warehouse(old) as warehouse:
        assert warehouse.sql("SELECT words_per_turn FROM user_features").fetchall() == [(3.5,)]
        assert warehouse.sql("SELECT count(*) FROM user_features_all").fetchall() == [(2,)]
        assert warehouse.sql("SELECT run_id, conversations, words_per_turn FROM user_report").fetchall() == [
            ("live", 1, 3.5)
        ]
    assert check(old).sound


@pytest.fixture
def schema_2(tmp_path: Path) -> Path:
    """A warehouse of commit 553b6d8: one run packed, indexed and restarted, one sealed, one whose writer was killed."""
    unpack(DATA / "schema2.tar.gz", tmp_path)
    return tmp_path


def test_a_warehouse_of_schema_2_is_read_continued_packed_and_searched(schema_2: Path) -> None:
    counted = [("live", 6, 6, 3.0), ("packed", 11, 10, 6.0), ("sealed", 6, 0, 3.0)]
    with open_warehouse(schema_2) as warehouse:
        assert warehouse.sql(COUNTS).fetchall() == counted
        assert warehouse.sql("SELECT count(*), sum(reward) FROM turns_all").fetchall() == [(26, 13.5)]
        assert warehouse.sql("SELECT run_id, rank FROM demonstrations").fetchall() == [("packed", 1)]
        assert warehouse.sql("SELECT study, state, value FROM trials").fetchall() == [("gamma", "complete", 0.5)]
        with raises("search.no_index"):
            warehouse.search("north")
    with TurnLog.open(schema_2, "packed") as log:
        log.event("rewind", step=4)
        again = play(log, [0.0, 1.0], step=5, credits=[1.0, 1.0])
    assert (log.run_no, log.incarnation, log.writer, again.traj_id) == (1, 3, 3, 1 << 40 | 3 << 24 | 1)
    done = compact(schema_2, many_small_packs=1)
    assert (len(done.merged), done.recovered, done.indexed) == (1, 5, 28)
    with open_warehouse(schema_2) as warehouse:
        assert warehouse.sql(COUNTS).fetchall() == counted
        assert warehouse.sql("SELECT score_r2g FROM trajectories WHERE run_id = 'packed' AND step = 5").fetchall() == [
            (0.9,)
        ]
        assert len(warehouse.search('"north star"', limit=100)) == 20
    assert check(schema_2).problems == []


def test_a_warehouse_of_a_newer_schema_is_not_written_to(old: Path) -> None:
    (old / "FORMAT").write_bytes(orjson.dumps({"schema": schema.version() + 1}))
    with raises("warehouse.newer_schema"):
        TurnLog.open(old, "new")


def test_later_schemas_only_add() -> None:
    for version, text in schema.scripts():
        statements = [
            line.split("(")[0].strip() for line in text.splitlines() if line and not line.startswith((" ", "-", ")"))
        ]
        allowed = ("CREATE TABLE",) if version == 1 else ("CREATE TABLE", "ALTER TABLE")
        assert all(statement.startswith(allowed) for statement in statements)
        assert "DROP" not in text
        assert "RENAME" not in text
