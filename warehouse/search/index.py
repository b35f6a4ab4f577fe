"""Text search over turns: an SQLite FTS5 index beside the packs, brought up to date by the compactor.

Contentless: the index holds words, the warehouse holds the text. It knows which words, and which bigrams roughly, each
turn has (`words`), so it answers an expression of words alone; for a phrase, NEAR and the like it gives candidates
(`expression`), whose text SQLite then matches in memory. Turns of a trajectory are indexed one after the other, so one
row (first_doc, traj_id, first_turn) locates them all. Hits come newest first, which needs no scoring of all matches and
is quick for common words too.

How turns are read is the caller's business (`warehouse.query`), so that this folder stands below it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from userrl_core.errors import ConfigError
from warehouse.files.layout import Segment, sync
from warehouse.search.expression import weaken
from warehouse.search.words import documents

INDEX = "search.sqlite"
LAYOUT = 3
"""In the file's user_version. An index of another layout is rebuilt: it holds nothing that the warehouse does not."""

ROUND = 4_096
"""Most candidates in one round of a search, whose texts are in memory at once."""

TEXT = "concat_ws(' ', thought, CASE WHEN choice IS NULL THEN message ELSE content END, observation)"
"""SQL for the text of a turn that is indexed and searched."""

HIT_COLUMNS = (
    *("run_id", "traj_id", "turn", "gym", "stage", "step", "phase"),
    *("reward", "choice", "content", "observation", "thought"),
)

SCHEMA = f"""
CREATE VIRTUAL TABLE words USING fts5(body, content='', columnsize=0, detail=none, tokenize='ascii');
CREATE TABLE places (first_doc INTEGER PRIMARY KEY, traj_id INTEGER, first_turn INTEGER);
CREATE TABLE segments (run_id TEXT, writer INTEGER, number INTEGER, PRIMARY KEY (run_id, writer, number)) WITHOUT ROWID;
CREATE TABLE size (last INTEGER);
PRAGMA user_version = {LAYOUT};
"""

_BROKEN = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Result codes of an index that does not hold what it should."""


@dataclass(frozen=True, slots=True)
class StoredTurns:
    """Whole segments of turns, sealed or packed, and what is in them: batches of (traj_id, turn, text) in key order."""

    segments: Set[Segment]
    batches: Iterable[Iterable[tuple[int, int, str]]]


TurnsBeyond = Callable[[Set[Segment]], StoredTurns | None]
"""The stored turns that lie in none of these segments; None where a pack holds some of these beside others."""

TurnsAt = Callable[[Sequence[tuple[int, int]], Sequence[str]], pa.Table]
"""Some columns of the turns (traj_id, turn), in the order of the keys; superseded ones left out."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The one run whose turns are searched, and the numbers of runs that it is certainly not (upper bits of a traj_id)."""

    run_id: str
    other_numbers: frozenset[int]


def search(
    root: Path,
    turns_at: TurnsAt,
    text: str,
    *,
    limit: int,
    run: RunFilter | None = None,
    seconds: float = 60.0,
    most: int = ROUND,
) -> pa.Table:
    """At most `limit` matching turns (`HIT_COLUMNS`), newest first.

    text: an FTS5 expression; one that FTS5 does not accept is searched as a phrase. most: candidates in one round.
    Raises ConfigError when there is no index or no word to search for, or the time is up.

    Few candidates are read at first, as turns that lie far from each other cost most of a search's time. Memory is
    bounded by one round; time by `seconds`, as common words that never stand together as the expression asks would have
    every turn read.
    """
    if not text.strip():
        raise ConfigError("There is nothing to search for; give at least one word.")
    if not (root / INDEX).exists():
        raise ConfigError("There is no text index yet; `userrl warehouse compact` makes it.")
    hits: list[pa.Table] = []
    missing, count, read = limit, min(limit + limit // 10 + 1, most), 0
    deadline = time.monotonic() + seconds
    with _reading(root) as index, closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        query = TextQuery(index, memory, text)
        while True:
            candidates = query.candidates(count)
            last = len(candidates) < count
            if run is not None:
                candidates = [key for key in candidates if key[0] >> 40 not in run.other_numbers]
            matched = 0
            if candidates or not hits:
                hits.append(_matches(turns_at, candidates, run, query))
                matched = hits[-1].num_rows
            missing -= matched
            if missing <= 0 or last:
                return pa.concat_tables(hits).slice(0, limit)
            read += len(candidates)
            if time.monotonic() > deadline:
                matches = limit - missing
                fewer = f", or ask for the first {matches}" if matches else ""
                raise ConfigError(
                    f"After {seconds:.0f} s, {matches} of {read:,} turns that hold these words match; "
                    f"name a rarer word{fewer}."
                )
            # Twice what the share of matches so far calls for; where hardly any matched, four times as many.
            count = min(4 * count, 1 + 2 * missing * count // max(matched, 1), most)


def indexed_segments(root: Path) -> set[Segment]:
    """The segments whose turns the index has; empty where there is none.

    Segments, and not how far each writer's rows reach: a turn that is sealed at once overtakes live ones before it.
    """
    if not (root / INDEX).exists():
        return set()
    with _reading(root) as index:
        return _segments(index)


class TextQuery:
    """One expression: candidates from the index in rounds, newest first, and the test which of them match.

    exact: every candidate does, so no text need be read.
    """

    def __init__(self, index: sqlite3.Connection, memory: sqlite3.Connection, text: str) -> None:
        self._index = index
        self._memory = memory
        self._before = 2**62
        # SQLite would take a null for the end of the expression, and a lone surrogate cannot be passed; neither is in a word.
        text = text.replace("\0", " ").encode("utf-8", "replace").decode()
        phrase = '"' + text.replace('"', '""') + '"'
        memory.execute("CREATE VIRTUAL TABLE words USING fts5(body, content='', columnsize=0, tokenize='unicode61')")
        # A star in front would ask FTS5 about itself.
        self._expression = phrase if text.lstrip().startswith("*") else text
        try:
            self._matched()
        except sqlite3.OperationalError:
            self._expression = phrase
        self._filter = weaken(self._expression)
        self.exact = self._filter.exact

    def candidates(self, count: int) -> list[tuple[int, int]]:
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
        return [self._key(doc) for (doc,) in docs]

    def matching(self, texts: list[str]) -> list[bool]:
        """Which of these turns' texts the expression matches."""
        self._memory.execute("INSERT INTO words(words) VALUES ('delete-all')")
        self._memory.executemany("INSERT INTO words(rowid, body) VALUES (?, ?)", enumerate(texts))
        matched = self._matched()
        return [doc in matched for doc in range(len(texts))]

    def _matched(self) -> set[int]:
        rows = self._memory.execute("SELECT rowid FROM words WHERE words MATCH ?", (self._expression,))
        return {doc for (doc,) in rows}

    def _key(self, doc: int) -> tuple[int, int]:
        first, traj_id, turn = self._index.execute(
            "SELECT first_doc, traj_id, first_turn FROM places WHERE first_doc <= ? ORDER BY first_doc DESC LIMIT 1",
            (doc,),
        ).fetchone()
        return traj_id, turn + doc - first


def _matches(turns_at: TurnsAt, candidates: list[tuple[int, int]], run: RunFilter | None, query: TextQuery) -> pa.Table:
    """Those candidates that match, in their order."""
    turns = turns_at(candidates, HIT_COLUMNS)
    if run is not None:
        turns = turns.filter(pc.equal(turns.column("run_id"), run.run_id))
    if query.exact or not turns.num_rows:
        return turns
    rows = turns.select(["thought", "content", "observation", "choice", "traj_id", "turn"]).to_pylist()
    # Only what could not be read as a call is searched as it was sent: it costs a query of its own.
    if unreadable := [(row["traj_id"], row["turn"]) for row in rows if row["choice"] is None]:
        sent = turns_at(unreadable, ["traj_id", "turn", "message"]).to_pylist()
        messages = {(row["traj_id"], row["turn"]): row["message"] for row in sent}
        for row in rows:
            if row["choice"] is None:
                row["content"] = messages.get((row["traj_id"], row["turn"]))
    return turns.filter(pa.array(query.matching([_text(row) for row in rows]), pa.bool_()))


def _text(turn: Mapping[str, str | None]) -> str:
    """`TEXT` in Python; `content` is the message where there was no choice."""
    return " ".join(part for part in (turn["thought"], turn["content"], turn["observation"]) if part is not None)


@contextmanager
def _reading(root: Path) -> Iterator[sqlite3.Connection]:
    """The index, opened so that SQLite can undo what a killed compaction left half done; ConfigError when it cannot."""
    # rw, not rwc: no index is made here. SQLite itself falls back to reading only where the file is write-protected.
    index = sqlite3.connect(f"{(root / INDEX).absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        if index.execute("PRAGMA user_version").fetchone() != (LAYOUT,):
            raise ConfigError(
                f"The text index {root / INDEX} has an older layout; `userrl warehouse compact` rebuilds it."
            )
        index.execute("SELECT count(*) FROM size").fetchall()
        yield index
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            raise ConfigError("The text index is being brought up to date; ask again in a moment.") from error
        raise ConfigError(
            f"The text index {root / INDEX} cannot be read ({error}); `userrl warehouse compact` rebuilds it."
        ) from error
    finally:
        index.close()


def update_index(root: Path, turns_beyond: TurnsBeyond) -> int:
    """Index sealed and packed turns not yet in it; returns how many. The compactor's lock must be held.

    A kill leaves the index as it was: additions are one transaction, and a rebuilt one, because the old is of another
    layout, cannot be read or has only some turns of a pack, replaces the old by a rename. Raises sqlite3.Error, for
    example for a full disk.
    """
    path, draft, compacted = root / INDEX, root / f".{INDEX}.new", root / f".{INDEX}.whole"
    try:
        if path.exists():
            with closing(sqlite3.connect(path, isolation_level=None)) as index:
                known = index.execute("PRAGMA user_version").fetchone() == (LAYOUT,)
                if known and (added := turns_beyond(_segments(index))) is not None:
                    return _add(index, added)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _BROKEN:
            raise
    try:
        _remove(draft, compacted)
        with closing(sqlite3.connect(draft, isolation_level=None)) as index:
            index.executescript(SCHEMA)
            # Twice as quick, but it leaves gaps in the file, which the copy does without.
            index.execute("INSERT INTO words(words, rank) VALUES ('hashsize', ?)", (16 << 20,))
            everything = turns_beyond(frozenset())
            indexed = _add(index, everything) if everything is not None else 0
            index.execute("INSERT INTO words(words, rank) VALUES ('hashsize', ?)", (1 << 20,))
            index.execute("VACUUM INTO ?", (str(compacted),))
        sync(compacted)
        # SQLite must not undo in the new file what was left half done in the old one.
        Path(f"{path}-journal").unlink(missing_ok=True)
        compacted.replace(path)
        sync(root)
    finally:
        _remove(draft, compacted)
    return indexed


def _segments(index: sqlite3.Connection) -> set[Segment]:
    rows = index.execute("SELECT run_id, writer, number FROM segments")
    return {Segment(run_id, "turns", writer, number) for run_id, writer, number in rows}


def _add(index: sqlite3.Connection, turns: StoredTurns) -> int:
    index.execute("PRAGMA cache_size = -131072")
    index.execute("BEGIN IMMEDIATE")
    first = doc = int(index.execute("SELECT coalesce(max(last), 0) FROM size").fetchone()[0])
    expected: tuple[int, int] | None = None
    for batch in turns.batches:
        texts, places = [], []
        for traj_id, turn, text in batch:
            doc += 1
            if expected != (traj_id, turn):
                places.append((doc, traj_id, turn))
            expected = (traj_id, turn + 1)
            texts.append(text)
        index.executemany("INSERT INTO places VALUES (?, ?, ?)", places)
        index.executemany(
            "INSERT INTO words(rowid, body) VALUES (?, ?)", enumerate(documents(texts), doc - len(texts) + 1)
        )
    index.executemany("INSERT INTO segments VALUES (?, ?, ?)", [(s.run_id, s.writer, s.number) for s in turns.segments])
    index.execute("DELETE FROM size")
    index.execute("INSERT INTO size VALUES (?)", (doc,))
    index.execute("COMMIT")
    return doc - first


def _remove(*paths: Path) -> None:
    for path in paths:
        for file in (path, Path(f"{path}-journal")):
            file.unlink(missing_ok=True)
