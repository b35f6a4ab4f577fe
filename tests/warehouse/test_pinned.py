"""Queries that take longer than any file lies still."""

from __future__ import annotations

import os
import time
from pathlib import Path

import duckdb
import pytest

from tests.makers import raises
from tests.warehouse.makers import play
from warehouse import TurnLog
from warehouse.files.pinned import FOLDER, STALE_SECONDS, pinned
from warehouse.query.connection import Connection, QueriedFiles


def test_a_query_under_which_files_always_move_is_answered_from_links(tmp_path: Path) -> None:
    asked: list[int] = []

    def ask(cursor: duckdb.DuckDBPyConnection, _: QueriedFiles) -> int:
        log = TurnLog.open(tmp_path, f"r{len(asked)}")
        play(log, [0.0, 1.0])
        asked.append(len(asked))
        logs.pop().close()  # what the query was to read is sealed away
        logs.append(log)
        return int(cursor.execute("SELECT count(*) FROM turns").fetchall()[0][0])

    logs = [TurnLog.open(tmp_path, "first")]
    play(logs[0], [0.0, 0.5, 1.0])
    with Connection(tmp_path) as connection:
        counted = connection.steady(ask)
        # As many as there were when its files were listed: three of the first run, two of each before this one.
        assert counted == 3 + 2 * (len(asked) - 1)
        assert len(asked) < 10
        assert list((tmp_path / FOLDER).iterdir()) == []
        assert connection.steady(lambda cursor, _: cursor.execute("SELECT count(*) FROM turns").fetchall()) == [
            (3 + 2 * len(asked),)
        ]
    logs.pop().close()


def test_where_no_link_can_be_made_the_query_says_that_files_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FOLDER).touch()  # no folder for links can be made
    monkeypatch.setattr("warehouse.query.connection.TRIES", 7)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    logs = [TurnLog.open(tmp_path, "first")]

    def ask(cursor: duckdb.DuckDBPyConnection, _: QueriedFiles) -> None:
        logs.append(TurnLog.open(tmp_path, f"r{len(logs)}"))
        play(logs[-1], [1.0])
        logs[-2].close()
        cursor.execute("SELECT count(*) FROM turns").fetchall()

    play(logs[0], [1.0])
    with Connection(tmp_path) as connection, raises("warehouse.busy"):
        connection.steady(ask)
    logs[-1].close()


def test_a_rewind_that_arrives_under_a_query_of_links_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.query.connection.UNPINNED_TRIES", 0)
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.0, 1.0], step=1)
        play(log, [0.0, 1.0], step=2)
    counts: list[int] = []

    def ask(cursor: duckdb.DuckDBPyConnection, _: QueriedFiles) -> None:
        if not counts:
            with TurnLog.open(tmp_path, "r1") as again:
                again.event("rewind", stage="rl-1", step=1)
        counts.append(int(cursor.execute("SELECT count(*) FROM turns").fetchall()[0][0]))

    with Connection(tmp_path) as connection:
        connection.steady(ask)
    assert counts == [4, 2]


def test_events_that_rewind_nothing_let_a_query_be(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.0, 1.0])
    asked: list[TurnLog] = []

    def ask(cursor: duckdb.DuckDBPyConnection, _: QueriedFiles) -> None:
        asked.append(TurnLog.open(tmp_path, f"other-{len(asked)}"))
        asked[-1].event("alarm", stage="rl-1", step=1)
        cursor.execute("SELECT count(*) FROM turns").fetchall()

    with Connection(tmp_path) as connection:
        connection.steady(ask)
    assert len(asked) == 1
    asked[0].close()


def test_sql_of_readers_is_answered_from_links_too(tmp_path: Path) -> None:
    log = TurnLog.open(tmp_path, "r1")
    play(log, [0.0, 1.0])
    with Connection(tmp_path) as connection:
        # The limit is set when all files are listed: closing then seals them away under the query.
        columns, _, rows = connection.fetch_locked("SELECT count(*) AS n FROM turns", {}, 10, (), log.close, pin=True)
    assert (columns, rows) == (["n"], [(2,)])
    assert not list(tmp_path.glob("runs/*/live/turns.*"))
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_links_of_a_killed_reader_are_removed_by_a_later_one(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0])
    left = tmp_path / FOLDER / "left"
    left.mkdir(parents=True)
    (left / "file").touch()
    with pinned(tmp_path):
        assert left.is_dir()  # perhaps of a reader that lives
    os.utime(left, (0, time.time() - STALE_SECONDS - 1))
    with pinned(tmp_path) as (listed, links):
        assert not left.exists()
        (path,), (link,) = listed.sealed["turns"], links.sealed["turns"]
        assert link.samefile(path)
    assert not link.exists()
