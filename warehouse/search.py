"""Text search over turns: an SQLite FTS5 index beside the packs, brought up to date by the compactor.

Contentless: the index holds words, the warehouse holds the text. It knows which words, and which bigrams roughly, each
turn has (`words`), so it answers an expression of words alone; for a phrase, NEAR and the like it names candidates
(`match`), whose text SQLite then matches in memory. Turns of a trajectory are indexed one after the other, so one row
(first_doc, traj_id, first_turn) places them all. Hits come newest first, which needs no scoring of all matches and is
quick for common words too.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from userrl_core.errors import ConfigError
from warehouse.files.layout import sync_folder
from warehouse.match import Filter, weaken
from warehouse.words import documents

INDEX = "search.sqlite"
LAYOUT = 2
"""In the file's user_version. An index of another layout is made anew: it holds nothing that the warehouse does not."""

BATCH = 20_000

MOST = 4_096
"""Most candidates in one round of a search, whose texts are in memory at once."""

TEXT = "concat_ws(' ', thought, CASE WHEN choice IS NULL THEN message ELSE content END, observation)"
"""SQL for the text of a turn that is indexed and searched."""

_BROKEN = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Result codes of an index that holds something else than it should."""

_SCHEMA = f"""
CREATE VIRTUAL TABLE words USING fts5(body, content='', columnsize=0, detail=none, tokenize='ascii');
CREATE TABLE places (first_doc INTEGER PRIMARY KEY, traj_id INTEGER, first_turn INTEGER);
CREATE TABLE marks (run_id TEXT, writer INTEGER, seq INTEGER, PRIMARY KEY (run_id, writer)) WITHOUT ROWID;
CREATE TABLE size (last INTEGER);
PRAGMA user_version = {LAYOUT};
"""


def update_index(root: Path) -> int:
    """Index sealed and packed turns not yet in it; returns how many. The compactor's lock must be held.

    A kill leaves the index as it was: additions are one transaction, and one that is made anew, because it is of another
    layout or cannot be read, replaces the old by a rename. Raises sqlite3.Error, for example for a full disk.
    """
    path, fresh, whole = root / INDEX, root / f".{INDEX}.new", root / f".{INDEX}.whole"
    try:
        if path.exists() and _layout(path) == LAYOUT:
            return _update(root, path)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BROKEN:
            raise
    try:
        _remove(fresh, whole)
        with closing(sqlite3.connect(fresh, isolation_level=None)) as index:
            index.executescript(_SCHEMA)
            # Twice as quick, but it leaves gaps in the file, which the copy does without.
            index.execute("INSERT INTO words(words, rank) VALUES ('hashsize', ?)", (16 << 20,))
            indexed = _update(root, fresh)
            index.execute("INSERT INTO words(words, rank) VALUES ('hashsize', ?)", (1 << 20,))
            index.execute("VACUUM INTO ?", (str(whole),))
        with whole.open("rb") as file:
            os.fsync(file.fileno())
        # SQLite must not undo in the new file what was left half done in the old one.
        Path(f"{path}-journal").unlink(missing_ok=True)
        whole.replace(path)
        sync_folder(root)
    finally:
        _remove(fresh, whole)
    return indexed


def _layout(path: Path) -> int:
    with closing(sqlite3.connect(path, isolation_level=None)) as index:
        return int(index.execute("PRAGMA user_version").fetchone()[0])


def _remove(*paths: Path) -> None:
    for path in paths:
        for file in (path, Path(f"{path}-journal")):
            file.unlink(missing_ok=True)


def _update(root: Path, path: Path) -> int:
    from warehouse.query.connection import open_warehouse

    with open_warehouse(root) as warehouse, closing(sqlite3.connect(path, isolation_level=None)) as index:
        index.execute("PRAGMA cache_size = -131072")
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
                bodies.append(body)
                newest[run_id, writer] = max(seq, newest.get((run_id, writer), 0))
            index.executemany("INSERT INTO places VALUES (?, ?, ?)", places)
            index.executemany(
                "INSERT INTO words(rowid, body) VALUES (?, ?)", enumerate(documents(bodies), doc - len(bodies) + 1)
            )
        index.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?)", [(*key, seq) for key, seq in newest.items()])
        index.execute("DELETE FROM size")
        index.execute("INSERT INTO size VALUES (?)", (doc,))
        index.execute("COMMIT")
        return doc - first


def marks(root: Path) -> list[tuple[str, int, int]]:
    """How far the index reaches: (run_id, writer, last seq)."""
    if not (root / INDEX).exists():
        return []
    with _reading(root) as index:
        return index.execute("SELECT run_id, writer, seq FROM marks").fetchall()


@contextmanager
def asking(root: Path, text: str) -> Iterator[Question]:
    """One search by an FTS5 expression; a text that is none is looked for as a phrase.

    Raises ConfigError when there is no index, or no word to look for.
    """
    if not text.strip():
        raise ConfigError("There is nothing to search for; give at least one word.")
    if not (root / INDEX).exists():
        raise ConfigError("There is no text index yet; `userrl warehouse compact` makes it.")
    with _reading(root) as index, closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        yield Question(index, memory, text)


class Question:
    """Candidates from the index in rounds, newest first, and the test which of them match.

    exact: every candidate does, so no text need be read.
    """

    def __init__(self, index: sqlite3.Connection, memory: sqlite3.Connection, text: str) -> None:
        self._index = index
        self._memory = memory
        self._before = 2**62
        # What SQLite would take for the end of the expression, and cannot be given, is no part of a word.
        text = text.replace("\0", " ").encode("utf-8", "replace").decode()
        phrase = '"' + text.replace('"', '""') + '"'
        memory.execute("CREATE VIRTUAL TABLE words USING fts5(body, content='', columnsize=0, tokenize='unicode61')")
        # A star in front would ask FTS5 about itself.
        self._expression = phrase if text.lstrip().startswith("*") else text
        try:
            self._matched()
        except sqlite3.OperationalError:
            self._expression = phrase
        self._filter: Filter = weaken(self._expression)
        self.exact = self._filter.exact

    def more(self, count: int) -> list[tuple[int, int]]:
        """(traj_id, turn) of up to `count` further candidates; fewer only when there are no others."""
        if self._filter.match is None:
            return []
        try:
            docs = self._index.execute(
                "SELECT rowid FROM words WHERE words MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?",
                (self._filter.match, self._before, count),
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "fts5" not in str(error):
                raise
            raise ConfigError(f"The search has too many parts within parts ({error}); ask for less at once.") from error
        if docs:
            self._before = docs[-1][0]
        return [_place(self._index, doc) for (doc,) in docs]

    def matching(self, texts: list[str]) -> list[bool]:
        """Which of these turns' texts the expression matches."""
        self._memory.execute("INSERT INTO words(words) VALUES ('delete-all')")
        self._memory.executemany("INSERT INTO words(rowid, body) VALUES (?, ?)", enumerate(texts))
        found = self._matched()
        return [doc in found for doc in range(len(texts))]

    def _matched(self) -> set[int]:
        rows = self._memory.execute("SELECT rowid FROM words WHERE words MATCH ?", (self._expression,))
        return {doc for (doc,) in rows}


@contextmanager
def _reading(root: Path) -> Iterator[sqlite3.Connection]:
    """The index, opened so that SQLite can undo what a killed compaction left half done; ConfigError when it cannot."""
    # rw, not rwc: no index is made here. SQLite itself falls back to reading only where the file is write-protected.
    index = sqlite3.connect(f"{(root / INDEX).absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        if index.execute("PRAGMA user_version").fetchone() != (LAYOUT,):
            raise ConfigError(
                f"The text index {root / INDEX} has an older layout; `userrl warehouse compact` renews it."
            )
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


def _place(index: sqlite3.Connection, doc: int) -> tuple[int, int]:
    first, traj_id, turn = index.execute(
        "SELECT first_doc, traj_id, first_turn FROM places WHERE first_doc <= ? ORDER BY first_doc DESC LIMIT 1", (doc,)
    ).fetchone()
    return traj_id, turn + doc - first
