"""Text search over turns: an SQLite FTS5 index beside the packs, brought up to date by the compactor.

Contentless: the index holds words, the warehouse holds the text. Turns of a trajectory are indexed one after the other,
so one row (first_doc, traj_id, first_turn) places them all. Hits come newest first, which needs no scoring of all
matches and is quick for common words too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from userrl_core.errors import ConfigError

INDEX = "search.sqlite"
BATCH = 20_000

_BROKEN = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Result codes of an index that holds something else than it should."""

_SCHEMA = """
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(body, content='', columnsize=0, tokenize='unicode61');
CREATE TABLE IF NOT EXISTS places (first_doc INTEGER PRIMARY KEY, traj_id INTEGER, first_turn INTEGER);
CREATE TABLE IF NOT EXISTS marks (run_id TEXT, writer INTEGER, seq INTEGER, PRIMARY KEY (run_id, writer)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS size (last INTEGER);
"""


def update_index(root: Path) -> int:
    """Index sealed and packed turns not yet in it; returns how many. The compactor's lock must be held.

    One transaction: a kill leaves the index as it was. An index that cannot be read is made again: it holds nothing that
    the warehouse does not. Raises sqlite3.Error, for example for a full disk.
    """
    try:
        return _update(root)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BROKEN:
            raise
    for name in (INDEX, f"{INDEX}-journal"):
        (root / name).unlink(missing_ok=True)
    return _update(root)


def _update(root: Path) -> int:
    from warehouse.read import open_warehouse

    with open_warehouse(root) as warehouse, closing(sqlite3.connect(root / INDEX, isolation_level=None)) as index:
        index.execute("PRAGMA cache_size = -131072")
        index.executescript(_SCHEMA)
        index.execute("BEGIN IMMEDIATE")
        marks = index.execute("SELECT run_id, writer, seq FROM marks").fetchall()
        first = doc = int(index.execute("SELECT coalesce(max(last), 0) FROM size").fetchone()[0])
        place: tuple[int, int] | None = None
        newest: dict[tuple[str, int], int] = {}
        for part in warehouse.stored_turns(marks, BATCH):
            bodies, places = [], []
            for traj_id, turn, run_id, writer, seq, body in part:
                doc += 1
                if place != (traj_id, turn):
                    places.append((doc, traj_id, turn))
                place = (traj_id, turn + 1)
                bodies.append((doc, body))
                newest[run_id, writer] = max(seq, newest.get((run_id, writer), 0))
            index.executemany("INSERT INTO places VALUES (?, ?, ?)", places)
            index.executemany("INSERT INTO words(rowid, body) VALUES (?, ?)", bodies)
        index.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", [(*key, seq) for key, seq in newest.items()])
        index.execute("DELETE FROM size")
        index.execute("INSERT INTO size VALUES (?)", (doc,))
        index.execute("COMMIT")
        return doc - first


def find(root: Path, text: str, limit: int, offset: int = 0) -> list[tuple[int, int]]:
    """(traj_id, turn) of turns whose text matches an FTS5 expression, newest first.

    A text that is no FTS5 expression is looked for as a phrase. Raises ConfigError when there is no index or no word.
    """
    if not text.strip():
        raise ConfigError("There is nothing to search for; give at least one word.")
    if not (root / INDEX).exists():
        raise ConfigError("There is no text index yet; `userrl warehouse compact` makes it.")
    with _reading(root) as index:
        try:
            docs = list(_match(index, text, limit, offset))
        except sqlite3.OperationalError:
            docs = list(_match(index, '"' + text.replace('"', '""') + '"', limit, offset))
        return [_place(index, doc) for doc in docs]


def marks(root: Path) -> list[tuple[str, int, int]]:
    """How far the index reaches: (run_id, writer, last seq)."""
    if not (root / INDEX).exists():
        return []
    with _reading(root) as index:
        return index.execute("SELECT run_id, writer, seq FROM marks").fetchall()


@contextmanager
def _reading(root: Path) -> Iterator[sqlite3.Connection]:
    """The index, opened so that SQLite can undo what a killed compaction left half done; ConfigError when it cannot."""
    # rw, not rwc: no index is made here. SQLite itself falls back to reading only where the file is write-protected.
    index = sqlite3.connect(f"{(root / INDEX).absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        index.execute("SELECT count(*) FROM size").fetchall()
        yield index
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise ConfigError("The text index is being brought up to date; ask again in a moment.") from error
        raise ConfigError(
            f"The text index {root / INDEX} cannot be read ({error}); `userrl warehouse compact` makes it again."
        ) from error
    finally:
        index.close()


def _match(index: sqlite3.Connection, text: str, limit: int, offset: int) -> Iterator[int]:
    for (doc,) in index.execute(
        "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ? OFFSET ?", (text, limit, offset)
    ):
        yield doc


def _place(index: sqlite3.Connection, doc: int) -> tuple[int, int]:
    first, traj_id, turn = index.execute(
        "SELECT first_doc, traj_id, first_turn FROM places WHERE first_doc <= ? ORDER BY first_doc DESC LIMIT 1", (doc,)
    ).fetchone()
    return traj_id, turn + doc - first
