"""Text search over turns: an SQLite FTS5 index next to the packs, updated by the compactor.

The index is contentless: it holds the words and their positions, and the warehouse holds the text. Turns of a
trajectory are indexed consecutively, so one row (first_doc, traj_id, first_turn) locates them all. Results are sorted
newest first. This needs no scoring of all matches, is fast for common words too, and reads only as many turns as are
shown.

The caller (`warehouse.query`) provides the functions that read turns, so this folder does not depend on it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from userrl_core.errors import ConfigError
from userrl_core.replaced_file import sync
from warehouse.files.layout import Segment

if TYPE_CHECKING:
    import pyarrow as pa

INDEX = "search.sqlite"
LAYOUT = 4
"""Version of the index, in the file's user_version. An index of another layout is rebuilt; all its data is in the warehouse."""

ROUND = 4_096
"""Maximum number of turns that a search reads at once."""

TEXT = "concat_ws(' ', thought, CASE WHEN choice IS NULL THEN message ELSE content END, observation)"
"""SQL for the text of a turn that is indexed and searched."""

TEXT_COLUMNS = ("choice", "thought", "message", "content", "observation")
"""The columns in `TEXT`."""

TEXT_BYTES = """coalesce(strlen(thought), 0) + coalesce(strlen(observation), 0)
+ coalesce(strlen(CASE WHEN choice IS NULL THEN message ELSE content END), 0) + 100"""
"""SQL for the memory of a turn's text. The 100 bytes are for its key and the text's own overhead."""

HIT_COLUMNS = (
    *("run_id", "traj_id", "turn", "gym", "stage", "step", "phase"),
    *("reward", "choice", "content", "observation", "thought"),
)

WORDS = "CREATE VIRTUAL TABLE words USING fts5(body, content='', columnsize=0, tokenize='unicode61')"

SCHEMA = f"""
{WORDS};
CREATE TABLE places (first_doc INTEGER PRIMARY KEY, traj_id INTEGER, first_turn INTEGER);
CREATE TABLE segments (run_id TEXT, writer INTEGER, number INTEGER, PRIMARY KEY (run_id, writer, number)) WITHOUT ROWID;
CREATE TABLE size (last INTEGER);
PRAGMA user_version = {LAYOUT};
"""

_MATCHES = """
SELECT words.rowid, traj_id, first_turn + words.rowid - first_doc
FROM words CROSS JOIN places ON first_doc = (SELECT max(first_doc) FROM places WHERE first_doc <= words.rowid)
WHERE words MATCH ? AND words.rowid < ? AND traj_id >> 40 NOT IN ({}) ORDER BY words.rowid DESC LIMIT ?
"""

_BROKEN = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Result codes of an index with wrong content."""

_TOO_LONG = "The search took too long and was stopped. Search for a rarer word."


@dataclass(frozen=True, slots=True)
class StoredTurns:
    """Whole segments of turns, sealed or packed, and their content: batches of (traj_id, turn, text) in key order.

    A batch is read on request, and is as large as fits in memory.
    """

    segments: Set[Segment]
    batches: Iterable[Iterable[tuple[int, int, str]]]


TurnsBeyond = Callable[[Set[Segment]], StoredTurns | None]
"""A function that returns the stored turns outside these segments; None where a pack mixes these with other segments."""

TurnsAt = Callable[[Sequence[tuple[int, int]], Sequence[str]], "pa.Table"]
"""A function that returns columns of the turns (traj_id, turn), in the order of the keys, without superseded ones."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The one run whose turns are searched, and the numbers of certainly different runs (upper bits of a traj_id)."""

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
    batch_size: int = ROUND,
) -> pa.Table:
    """Return at most `limit` matching turns (`HIT_COLUMNS`), newest first.

    text: an FTS5 expression; one that FTS5 does not accept is searched as a phrase. batch_size: turns read at once. Raises
    ConfigError without an index or a word to search for, and after `seconds`.
    """
    import pyarrow as pa  # late: a page that only lists what was found does without its 45 MB
    import pyarrow.compute as pc

    hits: list[pa.Table] = []
    missing, count, before = limit, min(limit, batch_size), 2**62
    deadline = time.monotonic() + seconds
    with _asking(root, text, run, deadline) as ask:
        while True:
            matches = ask(before, count)
            turns = turns_at([(traj_id, turn) for _, traj_id, turn in matches], HIT_COLUMNS)
            hits.append(turns if run is None else turns.filter(pc.equal(turns.column("run_id"), run.run_id)))
            missing -= hits[-1].num_rows
            if missing <= 0 or len(matches) < count:
                return pa.concat_tables(hits).slice(0, limit)
            # Superseded turns were among them; where many are, more are read at once.
            before, count = matches[-1][0], min(4 * count, batch_size)
            if time.monotonic() > deadline:
                raise ConfigError("search.bad_words", _TOO_LONG)


def trajectories(root: Path, text: str, *, limit: int, run: RunFilter | None, seconds: float) -> list[int]:
    """Return ids of trajectories with one of the `limit` newest matching turns, including superseded ones. Reads no turn.

    run: leaves out matches that certainly belong to another run. Raises as `search` does.
    """
    with _asking(root, text, run, time.monotonic() + seconds) as ask:
        return list(dict.fromkeys(traj_id for _, traj_id, _ in ask(2**62, limit)))


@contextmanager
def _asking(
    root: Path, text: str, run: RunFilter | None, deadline: float
) -> Iterator[Callable[[int, int], list[tuple[int, int, int]]]]:
    """Yield a function for (row, traj_id, turn) of a number of matches before a row, newest first.

    It fetches them all at once, so the index is not locked while turns are read.
    """
    if not text.strip():
        raise ConfigError("search.bad_words", "There is nothing to search for. Give at least one word.")
    if not (root / INDEX).exists():
        raise ConfigError("search.no_index", "There is no text index yet. `userrl warehouse compact` builds it.")
    expression, others = _expression(text), ", ".join(map(str, run.other_numbers if run else ()))
    with _reading(root) as index:
        if _layout(index) != LAYOUT:
            raise ConfigError(
                "search.no_index",
                f"The text index {root / INDEX} has an older layout. `userrl warehouse compact` rebuilds it.",
            )
        index.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)
        yield lambda before, count: index.execute(_MATCHES.format(others), (expression, before, count)).fetchall()


def indexed_segments(root: Path) -> set[Segment]:
    """Return the segments whose turns are indexed; empty without an index, or for an older layout.

    Segments are stored instead of each writer's last row, because a turn that is sealed at once overtakes earlier live ones.
    """
    if not (root / INDEX).exists():
        return set()
    with _reading(root) as index:
        return _segments(index) if _layout(index) == LAYOUT else set()


def _expression(text: str) -> str:
    """Return the text if FTS5 accepts it as an expression, else as a phrase."""
    # SQLite would take a null for the end of the expression, and a lone surrogate cannot be passed; neither is in a word.
    text = text.replace("\0", " ").encode("utf-8", "replace").decode()
    phrase = '"' + text.replace('"', '""') + '"'
    # A star in front would ask FTS5 about itself.
    if text.lstrip().startswith("*"):
        return phrase
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute(WORDS)
        try:
            memory.execute("SELECT rowid FROM words WHERE words MATCH ?", (text,)).fetchall()
        except sqlite3.OperationalError:
            return phrase
    return text


@contextmanager
def _reading(root: Path) -> Iterator[sqlite3.Connection]:
    """Open the index so that SQLite can undo the unfinished work of a killed compaction. Raises ConfigError when it cannot."""
    # rw, not rwc: no index is made here. SQLite itself falls back to reading only where the file is write-protected.
    index = sqlite3.connect(f"{(root / INDEX).absolute().as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        index.execute("SELECT count(*) FROM size").fetchall()
        yield index
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            raise ConfigError("search.bad_words", _TOO_LONG) from error
        if code == sqlite3.SQLITE_BUSY:
            raise ConfigError("warehouse.busy", "The text index is being updated. Ask again in a moment.") from error
        raise ConfigError(
            "search.no_index",
            f"The text index {root / INDEX} cannot be read ({error}). `userrl warehouse compact` rebuilds it.",
        ) from error
    finally:
        index.close()


def damage(root: Path, *, full: bool) -> str | None:
    """Return the fault of the index file, None without a fault or a file. The compactor's lock must be held.

    full: read every page. An index of an older layout is not damaged: the next compaction rebuilds it.
    """
    if not (root / INDEX).exists():
        return None
    try:
        with closing(sqlite3.connect(root / INDEX, isolation_level=None)) as index:
            if _layout(index) != LAYOUT:
                return None
            for (sentence,) in index.execute("PRAGMA integrity_check(1)") if full else ():
                if sentence != "ok":
                    return str(sentence).splitlines()[0]
            _segments(index)
            sizes = index.execute("SELECT last FROM size").fetchall()
            # The first index of an empty warehouse has no row.
            last = index.execute("SELECT coalesce(max(first_doc), 0) FROM places").fetchone()[0]
            if len(sizes) > 1 or last > (sizes[0][0] if sizes else 0):
                return "its parts do not fit together"
            if full and os.access(root / INDEX, os.W_OK):  # the words check themselves within a write
                index.execute("BEGIN IMMEDIATE")
                index.execute("INSERT INTO words(words) VALUES ('integrity-check')")
                index.execute("ROLLBACK")
    except sqlite3.Error as error:
        return str(error)
    return None


def older_layout(root: Path) -> bool:
    """Return True for an index of another layout, which the next compaction rebuilds."""
    if not (root / INDEX).exists():
        return False
    with _reading(root) as index:
        return _layout(index) != LAYOUT


def remove_index(root: Path) -> None:
    """Remove the index; the next compaction builds it again. The compactor's lock must be held."""
    _remove(root / INDEX)


def update_index(root: Path, turns_beyond: TurnsBeyond) -> int:
    """Index sealed and packed turns not yet in it. Return their number. The compactor's lock must be held.

    A kill leaves the index unchanged: additions are one transaction, and a rebuilt index replaces the old one by a
    rename. It is rebuilt when the old one has another layout, cannot be read, or has only some turns of a pack.
    Raises sqlite3.Error, for example for a full disk, and the errors of reading turns.
    """
    path, draft, compacted = root / INDEX, root / f".{INDEX}.new", root / f".{INDEX}.whole"
    try:
        if path.exists():
            with closing(sqlite3.connect(path, isolation_level=None)) as index:
                if _layout(index) == LAYOUT and (added := turns_beyond(_segments(index))) is not None:
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


def _layout(index: sqlite3.Connection) -> int:
    return int(index.execute("PRAGMA user_version").fetchone()[0])


def _segments(index: sqlite3.Connection) -> set[Segment]:
    rows = index.execute("SELECT run_id, writer, number FROM segments")
    return {Segment(run_id, "turns", writer, number) for run_id, writer, number in rows}


def _add(index: sqlite3.Connection, turns: StoredTurns) -> int:
    index.execute("PRAGMA cache_size = -131072")
    index.execute("BEGIN IMMEDIATE")
    first = doc = int(index.execute("SELECT coalesce(max(last), 0) FROM size").fetchone()[0])
    expected: tuple[int, int] | None = None
    for batch in turns.batches:
        texts, turn_keys = [], []
        for traj_id, turn, text in batch:
            doc += 1
            if expected != (traj_id, turn):
                turn_keys.append((doc, traj_id, turn))
            expected = (traj_id, turn + 1)
            texts.append(text)
        index.executemany("INSERT INTO places VALUES (?, ?, ?)", turn_keys)
        index.executemany("INSERT INTO words(rowid, body) VALUES (?, ?)", enumerate(texts, doc - len(texts) + 1))
    index.executemany("INSERT INTO segments VALUES (?, ?, ?)", [(s.run_id, s.writer, s.number) for s in turns.segments])
    index.execute("DELETE FROM size")
    index.execute("INSERT INTO size VALUES (?)", (doc,))
    index.execute("COMMIT")
    return doc - first


def _remove(*paths: Path) -> None:
    for path in paths:
        for file in (path, Path(f"{path}-journal")):
            file.unlink(missing_ok=True)
