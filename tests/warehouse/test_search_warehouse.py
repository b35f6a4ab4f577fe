from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tests.makers import raises
from tests.warehouse.kills import kill_at
from tests.warehouse.makers import make_task, make_turn, play
from userrl_core.records import RolloutContext, Trajectory, Turn
from warehouse import TurnLog, open_warehouse
from warehouse.search.index import INDEX
from warehouse.upkeep.compact import compact

TEXTS = ["north star", "star north", "north of a star", "star", "north", "the north star", "a star in the north star"]


def placed(hits: pa.Table) -> list[tuple[int, int, str]]:
    """(step, turn, content) of what a search found."""
    return [(hit["step"], hit["turn"], hit["content"]) for hit in hits.to_pylist()]


def search_hits(root: Path, text: str, *, run: str | None = None) -> list[tuple[int, int, str]]:
    with open_warehouse(root) as warehouse:
        return placed(warehouse.search(text, limit=100, run=run).to_arrow_table())


def some_texts(root: Path, run: str = "r1") -> None:
    with TurnLog.open(root, run) as log:
        for step, text in enumerate(TEXTS):
            play(log, [0.0, 1.0], step=step, text=text)
    compact(root)


def test_words_phrases_and_distances_are_found_newest_first(tmp_path: Path) -> None:
    some_texts(tmp_path)
    for text, steps in {
        '"north star"': [6, 5, 0],
        "NEAR(north star, 0)": [6, 5, 1, 0],
        'star NOT "north star"': [3, 2, 1],
        "north AND star NOT (the OR of)": [1, 0],
        "nor*": [6, 5, 4, 2, 1, 0],
        '"star of"': [],
        "NEAR(star observation thinking, 0)": [],
        "north AND (star": [],
    }.items():
        assert search_hits(tmp_path, text) == [(step, turn, TEXTS[step]) for step in steps for turn in (2, 1)]


def test_a_search_that_takes_too_long_is_ended_with_a_sentence(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for step in range(300):
            play(log, [0.0], step=step, text="north")
    compact(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        with raises("search.bad_words"):
            warehouse.search("north", limit=300, seconds=0.0)
        assert len(warehouse.search("north", limit=3, seconds=0.0)) == 3


@pytest.mark.parametrize("limit", [0, -1])
def test_a_search_for_no_turns_is_refused(tmp_path: Path, limit: int) -> None:
    some_texts(tmp_path)
    with open_warehouse(tmp_path) as warehouse, raises("argument.out_of_range"):
        warehouse.search("north", limit=limit)


def test_a_phrase_does_not_reach_from_one_turn_into_the_next(tmp_path: Path) -> None:
    some_texts(tmp_path)
    assert len(search_hits(tmp_path, '"observation 1"')) == 7
    assert search_hits(tmp_path, '"observation 1 thinking"') == search_hits(tmp_path, '"1 thinking"') == []


def test_what_was_no_call_is_searched_as_it_was_sent(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        played = Trajectory(
            make_task(), attempt=0, horizon=8, seed=1, context=RolloutContext("rl-1", 1, "train", "model"), group="g"
        )
        log.begin(played)
        for turn in (
            Turn(1, None, "unread content", "I think", "sent instead", "no call", 0.0),
            Turn(2, "action", "read content", "", "sent as well", "", 1.0),
        ):
            played.turns.append(turn)
            log.turn(played, turn)
        log.end(played)
    compact(tmp_path)
    for text, turns in {
        '"think sent instead no"': [1],
        '"sent instead"': [1],
        "sent": [1],
        '"unread content"': [],
        '"read content"': [2],
        '"as well"': [],
    }.items():
        assert [turn for _, turn, _ in search_hits(tmp_path, text)] == turns


def test_a_trajectory_indexed_in_two_parts_is_found_whole(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1", segment_rows=2) as log:
        played = play(log, [0.0, 0.5], text="first half", end=False)
        for number in (3, 4):
            turn = make_turn(number, 1.0, text="other half")
            played.turns.append(turn)
            log.turn(played, turn)
    first, second = sorted(tmp_path.glob("runs/*/sealed/turns.*.parquet"))
    second.rename(tmp_path / "later")
    assert compact(tmp_path).indexed == 2
    (tmp_path / "later").rename(second)
    assert compact(tmp_path).indexed == 2
    assert not first.exists()
    assert [turn for _, turn, _ in search_hits(tmp_path, "half")] == [4, 3, 2, 1]
    assert [turn for _, turn, _ in search_hits(tmp_path, '"first half"')] == [2, 1]
    assert [turn for _, turn, _ in search_hits(tmp_path, '"thinking other half"')] == [4, 3]
    assert search_hits(tmp_path, "first AND other") == []


def test_hits_of_one_run_are_found_among_those_of_others(tmp_path: Path) -> None:
    for run in ("r1", "r2", "r3"):
        some_texts(tmp_path, run)
    for run in ("r1", "r2", "r3"):
        assert [step for step, *_ in search_hits(tmp_path, '"north star"', run=run)] == [6, 6, 5, 5, 0, 0]
    assert len(search_hits(tmp_path, '"north star"')) == 18


OLD = """
CREATE VIRTUAL TABLE words USING fts5(body, content='', columnsize=0, tokenize='unicode61');
CREATE TABLE places (first_doc INTEGER PRIMARY KEY, traj_id INTEGER, first_turn INTEGER);
CREATE TABLE marks (run_id TEXT, writer INTEGER, seq INTEGER, PRIMARY KEY (run_id, writer)) WITHOUT ROWID;
CREATE TABLE size (last INTEGER);
INSERT INTO size VALUES (0);
"""


def aged(root: Path) -> bytes:
    """Put an index of the first layout in place; returns its bytes."""
    (root / INDEX).unlink()
    with closing(sqlite3.connect(root / INDEX)) as index:
        index.executescript(OLD)
    return (root / INDEX).read_bytes()


MARKS = "CREATE TABLE marks (run_id TEXT, writer INTEGER, seq INTEGER); DROP TABLE segments; PRAGMA user_version = 2;"
WITHOUT_POSITIONS = """
DROP TABLE words;
CREATE VIRTUAL TABLE words USING fts5(body, content='', columnsize=0, detail=none, tokenize='ascii');
PRAGMA user_version = 3;
"""


@pytest.mark.parametrize("aging", [MARKS, WITHOUT_POSITIONS])
def test_an_index_of_an_older_layout_has_no_turn_until_it_is_rebuilt(tmp_path: Path, aging: str) -> None:
    some_texts(tmp_path)
    with closing(sqlite3.connect(tmp_path / INDEX)) as index:
        index.executescript(aging)
    with open_warehouse(tmp_path) as warehouse:
        with raises("search.no_index"):
            warehouse.search("north")
        assert warehouse.unindexed() == 14
        # The page reads the turns instead.
        assert len(warehouse.trajectories_with("north star", limit=100)) == 3
    assert compact(tmp_path).indexed == 14
    assert len(search_hits(tmp_path, '"north star"')) == 6


def test_an_index_of_the_first_layout_is_reported_and_rebuilt(tmp_path: Path) -> None:
    some_texts(tmp_path)
    aged(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        with raises("search.no_index"):
            warehouse.search("north")
        assert warehouse.unindexed() == 14
        assert compact(tmp_path).indexed == 14
        assert warehouse.search("north").pl().height == 12
        assert warehouse.unindexed() == 0
    assert compact(tmp_path).indexed == 0


def test_a_kill_while_it_is_rebuilt_leaves_one_whole_index(tmp_path: Path) -> None:
    some_texts(tmp_path)
    before = aged(tmp_path)
    kill_at("os.rename", INDEX, tmp_path)
    assert (tmp_path / INDEX).read_bytes() == before
    kill_at("open", tmp_path.name, tmp_path)
    assert len(search_hits(tmp_path, '"north star"')) == 6
    assert compact(tmp_path).indexed == 0


def test_what_a_killed_rebuild_left_is_removed(tmp_path: Path) -> None:
    some_texts(tmp_path)
    aged(tmp_path)
    left = [tmp_path / f".{INDEX}{end}" for end in (".new", ".new-journal", ".whole", ".whole-journal")]
    for path in left:
        path.write_bytes(os.urandom(5000))
    assert compact(tmp_path).indexed == 14
    assert not any(path.exists() for path in left)
    assert len(search_hits(tmp_path, '"north star"')) == 6
