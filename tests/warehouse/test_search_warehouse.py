from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tests.warehouse.kills import kill_at
from tests.warehouse.makers import make_task, make_turn, play
from userrl_core.errors import ConfigError
from userrl_core.records import RolloutContext, Trajectory, Turn
from warehouse import TurnLog, Warehouse, open_warehouse
from warehouse.search.index import INDEX, RunFilter, search
from warehouse.upkeep.compact import compact

TEXTS = ["north star", "star north", "north of a star", "star", "north", "the north star", "a star in the north star"]


def placed(hits: pa.Table) -> list[tuple[int, int, str]]:
    """(step, turn, content) of what a search found."""
    return [(hit["step"], hit["turn"], hit["content"]) for hit in hits.to_pylist()]


def search_hits(root: Path, text: str, *, run: str | None = None) -> list[tuple[int, int, str]]:
    with open_warehouse(root) as warehouse:
        return placed(warehouse.search(text, limit=100, run=run).to_arrow_table())


def in_rounds(
    warehouse: Warehouse, text: str, *, limit: int = 100, run: RunFilter | None = None, seconds: float = 60.0
) -> tuple[list[tuple[int, int, str]], list[int]]:
    """The same with at most three candidates in a round, and how many turns each round read."""
    sizes: list[int] = []

    def turns_at(keys: Sequence[tuple[int, int]], columns: Sequence[str]) -> pa.Table:
        sizes.append(len(keys))
        return warehouse.turns_at(keys, columns)

    hits = search(warehouse.root, turns_at, text, limit=limit, run=run, seconds=seconds, most=3)
    assert max(sizes) <= 3
    return placed(hits), sizes


def some_texts(root: Path, run: str = "r1") -> None:
    with TurnLog.open(root, run) as log:
        for step, text in enumerate(TEXTS):
            play(log, [0.0, 1.0], step=step, text=text)
    compact(root)


def test_phrases_and_distances_are_found_over_many_small_rounds(tmp_path: Path) -> None:
    some_texts(tmp_path)
    phrase = [(step, turn, TEXTS[step]) for step in (6, 5, 0) for turn in (2, 1)]
    with open_warehouse(tmp_path) as warehouse:
        hits, sizes = in_rounds(warehouse, '"north star"')
        assert (hits, len(sizes) > 1) == (phrase, True)
        assert in_rounds(warehouse, '"north star"', limit=3)[0] == phrase[:3]
        for text, steps in {
            "NEAR(north star, 0)": {0, 1, 5, 6},
            'star NOT "north star"': {1, 2, 3},
            '"star of"': set(),
            "NEAR(star observation thinking, 0)": set(),
            "north AND star NOT (the OR of)": {0, 1},
        }.items():
            hits, _ = in_rounds(warehouse, text)
            assert {step for step, *_ in hits} == steps
            assert placed(warehouse.search(text).to_arrow_table()) == hits


def test_a_search_that_reads_too_long_says_how_many_it_has(tmp_path: Path) -> None:
    some_texts(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        with pytest.raises(ConfigError, match=r"After 0 s, 3 of 3 turns .* rarer word, or ask for the first 3\."):
            in_rounds(warehouse, '"north star"', seconds=0.0)
        assert len(in_rounds(warehouse, '"north star"', limit=3, seconds=0.0)[0]) == 3
        with pytest.raises(ConfigError, match=r"0 of 3 turns .* match; name a rarer word\."):
            in_rounds(warehouse, "NEAR(star observation thinking, 0)", seconds=0.0)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_search_for_no_turns_is_refused(tmp_path: Path, limit: int) -> None:
    some_texts(tmp_path)
    with open_warehouse(tmp_path) as warehouse, pytest.raises(ConfigError, match="at least one turn"):
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
    with open_warehouse(tmp_path) as warehouse:
        first, sizes = in_rounds(warehouse, '"north star"', run=RunFilter("r1", frozenset({2, 3})))
        # No text of the newer runs was read for it.
        assert len(first) == 6 <= sum(sizes) <= 2 * len(TEXTS)
        for run in ("r1", "r2", "r3"):
            assert placed(warehouse.search('"north star"', run=run).to_arrow_table()) == first
        assert len(warehouse.search('"north star"')) == 18


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


def test_an_index_that_knew_how_far_each_writer_reached_is_rebuilt(tmp_path: Path) -> None:
    some_texts(tmp_path)
    with closing(sqlite3.connect(tmp_path / INDEX)) as index:
        index.executescript(MARKS)
    with (
        open_warehouse(tmp_path) as warehouse,
        pytest.raises(ConfigError, match="older layout; `userrl warehouse compact`"),
    ):
        warehouse.search("north")
    assert compact(tmp_path).indexed == 14
    assert len(search_hits(tmp_path, '"north star"')) == 6


def test_an_index_of_the_first_layout_is_reported_and_rebuilt(tmp_path: Path) -> None:
    some_texts(tmp_path)
    aged(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        with pytest.raises(ConfigError, match="older layout; `userrl warehouse compact`"):
            warehouse.search("north")
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
