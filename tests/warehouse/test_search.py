"""What a search finds is what one plain FTS5 row for each turn would find, newest first, page by page, run by run."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.warehouse.makers import play
from warehouse import TurnLog, Warehouse, open_warehouse
from warehouse.search.index import RunFilter, search
from warehouse.upkeep.compact import compact

WORDS = ["a", "b", "a", "b", "c", "ab", "É", "or", "x_y"]
ODD = ["e\u0301", "-", "a.b", "\u2000\u2001", "near", "ÆØ"]
LONG = " ".join(f"w{n}" for n in range(5000))
RUNS = ("r1", "r2")


@dataclass(frozen=True)
class Searched:
    """A warehouse that was indexed in four parts, and the same texts as plain rows: rowid in the order of indexing."""

    warehouse: Warehouse
    plain: sqlite3.Connection
    keys: list[tuple[int, int]]
    numbers: dict[str, int]
    superseded: set[int]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    """Two runs by turns; the second part of the first run is superseded."""
    root, draw = tmp_path_factory.mktemp("searched"), random.Random(1)
    numbers: dict[str, int] = {}
    keys: list[tuple[int, int]] = []
    texts: list[str] = []
    superseded: set[int] = set()
    for part in range(4):
        played = {}
        for run in RUNS:
            with TurnLog.open(root, run) as log:
                if part == 2 and run == "r1":
                    log.event("rewind", step=0)
                for n in range(5):
                    text = " ".join(draw.choices([*WORDS, *WORDS, *ODD], k=draw.randint(1, 10)))
                    text = {(1, 0): LONG, (1, 1): "x" * 40_000 + " b", (1, 2): "c" + "-" * 9 + "\0b"}.get(
                        (part, n), text
                    )
                    done = play(log, [0.0] * draw.randint(1, 4), step=1, text=text)
                    assert done.traj_id is not None
                    played[done.traj_id] = done
                numbers[run] = log.run_no
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warehouse.upkeep.compact.GRACE_SECONDS", 0.0)
            compact(root)
        for traj_id, done in sorted(played.items()):
            for turn in done.turns:
                keys.append((traj_id, turn.number))
                texts.append(f"{turn.thought} {turn.content} {turn.observation}")
                if part < 2 and traj_id >> 40 == numbers["r1"]:
                    superseded.add(len(keys))
    with open_warehouse(root) as warehouse, closing(sqlite3.connect(":memory:")) as plain:
        plain.execute("CREATE VIRTUAL TABLE plain USING fts5(body, tokenize='unicode61')")
        plain.executemany("INSERT INTO plain(rowid, body) VALUES (?, ?)", enumerate(texts, 1))
        yield Searched(warehouse, plain, keys, numbers, superseded)


def expected(searched: Searched, text: str, limit: int, run: str | None) -> list[tuple[int, int]]:
    ask = "SELECT rowid FROM plain WHERE plain MATCH ? ORDER BY rowid DESC"
    try:
        docs = searched.plain.execute(ask, (text,)).fetchall()
    except sqlite3.OperationalError:
        docs = searched.plain.execute(ask, ('"' + text.replace('"', '""') + '"',)).fetchall()
    keys = [searched.keys[doc - 1] for (doc,) in docs if doc not in searched.superseded]
    return [key for key in keys if run is None or key[0] >> 40 == searched.numbers[run]][:limit]


def found(
    searched: Searched, text: str, *, limit: int = 1000, run: str | None = None, most: int = 4096
) -> tuple[list[tuple[int, int]], list[int]]:
    """(traj_id, turn) of the hits, and how many turns were read in each round."""
    sizes: list[int] = []

    def turns_at(keys: Sequence[tuple[int, int]], columns: Sequence[str]) -> pa.Table:
        sizes.append(len(keys))
        return searched.warehouse.turns_at(keys, columns)

    others = frozenset(number for name, number in searched.numbers.items() if name != run)
    only = RunFilter(run, others) if run is not None else None
    hits = search(searched.warehouse.root, turns_at, text, limit=limit, run=only, batch_size=most).to_pylist()
    return [(hit["traj_id"], hit["turn"]) for hit in hits], sizes


STRINGS = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(WORDS),
    st.lists(st.sampled_from([*WORDS, "-", '""', "AND"]), max_size=3).map(lambda some: '"' + " ".join(some) + '"'),
)
STARRED = st.tuples(STRINGS, st.sampled_from(["", "", "", "*", " *"])).map("".join)
PHRASES = st.one_of(STARRED, st.lists(STARRED, min_size=1, max_size=3).map(" + ".join))
NEARS = st.tuples(
    st.lists(PHRASES, min_size=1, max_size=3).map(" ".join), st.sampled_from(["", ",0", ", 1", ",3"])
).map("NEAR({0[0]}{0[1]})".format)
COLUMNS = st.sampled_from(["", "", "", "", "", "body : ", "- body:", "{body}: ", "body:"])
LEAVES = st.tuples(COLUMNS, st.one_of(PHRASES, PHRASES, PHRASES.map(lambda one: f"^ {one}"), NEARS)).map("".join)
EXPRESSIONS = st.recursive(
    st.lists(LEAVES, min_size=1, max_size=2).map(" ".join),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" AND ", " OR ", " OR ", " NOT ", " NOT "]), inner).map("".join),
        st.tuples(COLUMNS, inner).map("{0[0]}({0[1]})".format),
    ),
    max_leaves=6,
)
SYMBOLS = st.lists(
    st.sampled_from([*WORDS, "AND", "OR", "NOT", "NEAR", "NEAR(", *'(){}:,+^-" ', "body", "2"]), min_size=1, max_size=9
)
HOSTILE = st.one_of(SYMBOLS.map(" ".join), SYMBOLS.map("".join)).filter(str.strip)


@settings(max_examples=150, deadline=None)
@given(st.one_of(EXPRESSIONS, HOSTILE), st.integers(1, 90), st.sampled_from([None, *RUNS]), st.integers(1, 40))
@example("a b", 3, "r1", 1)
@example("a AND (b", 5, None, 3)
@example("'; DROP TABLE words; --", 5, None, 3)
@example(f'"{LONG}"', 5, None, 3)
@example(LONG + " w", 5, None, 3)
@example('"' + "x" * 40_000 + ' b"', 5, None, 3)
@example("c\0b", 90, None, 40)
@example("a" + " NOT b" * 150, 90, None, 40)
@example("a" + " AND a" * 2000, 90, None, 40)
@example("a" + " OR b" * 2000, 90, None, 40)
@example("(" * 60 + "a" + ")" * 60, 90, None, 40)
@example("a OR (" * 20 + "a" + ")" * 20, 90, None, 40)
@example("(" * 5000 + "a" + ")" * 5000, 90, None, 40)
def test_a_search_finds_what_one_fts5_row_per_turn_would(
    searched: Searched, text: str, limit: int, run: str | None, most: int
) -> None:
    hits, sizes = found(searched, text, limit=limit, run=run, most=most)
    assert hits == expected(searched, text.replace("\0", " "), limit, run)
    assert max(sizes) <= most


def test_as_many_turns_are_read_as_are_shown(searched: Searched) -> None:
    hits, sizes = found(searched, "observation", limit=7)
    assert (len(hits), sizes) == (7, [7])
    # Of one run too: no turn of the other is read.
    hits, sizes = found(searched, "observation", limit=7, run="r1")
    assert (len(hits), sizes) == (7, [7])
    # Superseded turns drop out, and then more are read.
    hits, sizes = found(searched, "observation", run="r1", most=20)
    assert (len(hits), sum(sizes)) == (
        len(expected(searched, "observation", 1000, "r1")),
        len(hits) + len(searched.superseded),
    )


@pytest.mark.parametrize("text", ["*reads", " *id", "*a"])
def test_queries_about_the_index_itself_are_phrases(searched: Searched, text: str) -> None:
    assert found(searched, text)[0] == expected(searched, f'"{text}"', 1000, None)
