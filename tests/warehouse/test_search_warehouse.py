from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.warehouse.makers import make_task, make_turn, play
from userrl_core.errors import ConfigError
from userrl_core.records import Trajectory, Turn, Where
from warehouse import TurnLog, open_warehouse, search
from warehouse.search import INDEX, Question
from warehouse.upkeep.compact import compact

TEXTS = ["north star", "star north", "north of a star", "star", "north", "the north star", "a star in the north star"]


def told(root: Path, text: str, *, limit: int = 100, run: str | None = None) -> list[tuple[int, int, str]]:
    """(step, turn, content) of what a search finds."""
    with open_warehouse(root) as warehouse:
        found = warehouse.search(text, limit=limit, run=run).pl()
    return list(zip(found["step"], found["turn"], found["content"], strict=True))


def some_texts(root: Path, run: str = "r1") -> None:
    with TurnLog.open(root, run) as log:
        for step, text in enumerate(TEXTS):
            play(log, [0.0, 1.0], step=step, text=text)
    compact(root)


@pytest.fixture
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many texts each round read, when none may read more than three."""
    monkeypatch.setattr(search, "MOST", 3)
    sizes: list[int] = []
    matching = Question.matching

    def counted(self: Question, texts: list[str]) -> list[bool]:
        sizes.append(len(texts))
        return matching(self, texts)

    monkeypatch.setattr(Question, "matching", counted)
    yield sizes
    assert max(sizes, default=0) <= 3


def test_phrases_and_distances_are_found_over_many_small_rounds(tmp_path: Path, small_rounds: list[int]) -> None:
    some_texts(tmp_path)
    phrase = [(step, turn, TEXTS[step]) for step in (6, 5, 0) for turn in (2, 1)]
    assert told(tmp_path, '"north star"') == phrase
    assert told(tmp_path, '"north star"', limit=3) == phrase[:3]
    assert {step for step, *_ in told(tmp_path, "NEAR(north star, 0)")} == {0, 1, 5, 6}
    assert {step for step, *_ in told(tmp_path, 'star NOT "north star"')} == {1, 2, 3}
    assert told(tmp_path, '"star of"') == told(tmp_path, "NEAR(star observation thinking, 0)") == []
    assert sum(small_rounds) > 30


@pytest.mark.usefixtures("small_rounds")
def test_a_search_that_reads_too_long_says_how_many_it_has(tmp_path: Path) -> None:
    some_texts(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        with pytest.raises(ConfigError, match=r"After 0 s, 3 of 3 turns .* rarer word, or ask for the first 3\."):
            warehouse.search('"north star"', seconds=0.0)
        assert len(warehouse.search('"north star"', limit=3, seconds=0.0)) == 3
        with pytest.raises(ConfigError, match=r"0 of 3 turns .* match; name a rarer word\."):
            warehouse.search("NEAR(star observation thinking, 0)", seconds=0.0)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_search_for_no_turns_is_refused(tmp_path: Path, limit: int) -> None:
    some_texts(tmp_path)
    with open_warehouse(tmp_path) as warehouse, pytest.raises(ConfigError, match="at least one turn"):
        warehouse.search("north", limit=limit)


def test_words_alone_need_no_texts(tmp_path: Path, small_rounds: list[int]) -> None:
    some_texts(tmp_path)
    assert {step for step, *_ in told(tmp_path, "north AND star NOT (the OR of)")} == {0, 1}
    assert small_rounds == []


def test_a_phrase_does_not_reach_from_one_turn_into_the_next(tmp_path: Path) -> None:
    some_texts(tmp_path)
    assert len(told(tmp_path, '"observation 1"')) == 7
    assert told(tmp_path, '"observation 1 thinking"') == told(tmp_path, '"1 thinking"') == []


def test_what_was_no_call_is_searched_as_it_was_sent(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        played = Trajectory(
            make_task(), attempt=0, horizon=8, seed=1, where=Where("rl-1", 1, "train", "model"), group="g"
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
        assert [turn for _, turn, _ in told(tmp_path, text)] == turns


def test_a_trajectory_indexed_in_two_parts_is_found_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warehouse.write.wal.SEGMENT_ROWS", 2)
    with TurnLog.open(tmp_path, "r1") as log:
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
    assert [turn for _, turn, _ in told(tmp_path, "half")] == [4, 3, 2, 1]
    assert [turn for _, turn, _ in told(tmp_path, '"first half"')] == [2, 1]
    assert [turn for _, turn, _ in told(tmp_path, '"thinking other half"')] == [4, 3]
    assert told(tmp_path, "first AND other") == []


def test_hits_of_one_run_are_found_among_those_of_others(tmp_path: Path, small_rounds: list[int]) -> None:
    for run in ("r1", "r2", "r3"):
        some_texts(tmp_path, run)
    first = told(tmp_path, '"north star"', run="r1")
    # No text of the newer runs was read for it.
    assert len(first) == 6 <= sum(small_rounds) <= 2 * len(TEXTS)
    assert first == told(tmp_path, '"north star"', run="r3")
    assert len(told(tmp_path, '"north star"', run="r2")) == 6
    assert len(told(tmp_path, '"north star"')) == 18


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


def test_an_index_of_the_first_layout_is_told_and_made_anew(tmp_path: Path) -> None:
    some_texts(tmp_path)
    aged(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        with pytest.raises(ConfigError, match="older layout; `userrl warehouse compact`"):
            warehouse.search("north")
        assert compact(tmp_path).indexed == 14
        assert warehouse.search("north").pl().height == 12
        assert warehouse.unindexed() == 0
    assert compact(tmp_path).indexed == 0


@pytest.mark.parametrize("where", ["warehouse.search.os.fsync", "warehouse.search.sync_folder"])
def test_a_kill_while_it_is_made_anew_leaves_one_whole_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    some_texts(tmp_path)
    before = aged(tmp_path)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, die)
        with pytest.raises(KeyboardInterrupt):
            search.update_index(tmp_path)
    if where.endswith("fsync"):
        assert (tmp_path / INDEX).read_bytes() == before
    assert compact(tmp_path).indexed in (0, 14)
    assert len(told(tmp_path, '"north star"')) == 6


def test_what_a_killed_build_left_is_cleared_away(tmp_path: Path) -> None:
    some_texts(tmp_path)
    aged(tmp_path)
    left = [tmp_path / f".{INDEX}{end}" for end in (".new", ".new-journal", ".whole", ".whole-journal")]
    for path in left:
        path.write_bytes(os.urandom(5000))
    assert compact(tmp_path).indexed == 14
    assert not any(path.exists() for path in left)
    assert len(told(tmp_path, '"north star"')) == 6
