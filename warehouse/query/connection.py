"""An in-memory DuckDB whose views show the current directory while others write there.

Every query takes a fresh snapshot of the files, so it sees everything that was logged before it began, by any
process. If a file is sealed or packed during a query, or a rewind arrives, the query runs again.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

import duckdb

from userrl_core.errors import LogError
from warehouse import reference, schema, views
from warehouse.files.encode import fitting
from warehouse.files.layout import Snapshot, check_exists, segment_of, take_snapshot
from warehouse.files.pinned import pinned
from warehouse.files.runs import left_out, read_run
from warehouse.query import dictionary, scan, superseded
from warehouse.query.fetch import fetch_rows, file_fault, may_be_of_a_file
from warehouse.query.superseded import Rewind
from warehouse.schema import file_list, literal

T = TypeVar("T")

TRIES = 40
"""Maximum runs of a query whose files moved; each try takes a new snapshot."""

UNPINNED_TRIES = 4
"""Number of these tries that read the files in place. The others hold them by links, because a query of seconds never
finds the files of many running runs unmoved.
"""

MAX_THREADS = 8
"""Maximum threads of an untrusted query, whose memory is limited."""


_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class QueriedFiles:
    """The input of a query: the files, and the rewinds that hide rows in them."""

    snapshot: Snapshot
    rewinds: list[Rewind]


def logged_tables(stored: Iterable[str], rewinds: Sequence[Rewind]) -> list[str]:
    """Return SQL that shows the logged tables in an empty in-memory database, from the SQL of the tables of schema `store`."""
    return [
        "CREATE SCHEMA store; CREATE SCHEMA template; CREATE SCHEMA reference",
        "USE template",
        *(text for _, text in schema.scripts()),
        "USE main",
        *stored,
        views.scripts()[0],
        *superseded.definitions(rewinds),
    ]


@cache
def shipped_queries() -> dict[str, str]:
    """Return SQL of each shipped query and published table by name, in the order to run it in after `logged_tables`.

    A query that needs no parameter is defined twice: as a macro and as a view.
    """
    statements = reference.definitions() | views.definitions()
    for query in views.queries().values():
        if query.name in statements and None not in query.params.values():
            statements[query.name] += f"CREATE OR REPLACE VIEW {query.name} AS FROM {query.name}();\n"
    return statements


def used_queries(text: str) -> list[str]:
    """Return the names in `shipped_queries` that a text may use, and those that they use, in their order.

    Each word that is such a name counts, so the list may be too long. A text that puts a name together gets too few.
    """
    words_by_query = _words()
    used: set[str] = set()
    unread = _WORD.findall(text.lower())
    while unread := [name for name in unread if name in words_by_query and name not in used]:
        used.update(unread)
        unread = [token for name in unread for token in words_by_query[name]]
    return [name for name in words_by_query if name in used]


@cache
def _words() -> dict[str, frozenset[str]]:
    texts = {name: re.sub("--.*", "", text.lower()) for name, text in shipped_queries().items()}
    return {name: frozenset(_WORD.findall(text)) for name, text in texts.items()}


class Connection:
    """A thread-safe connection: each query has its own cursor. Raises ConfigError for a missing warehouse.

    At first only the logged tables exist: all shipped queries take four fifths of the time to open a warehouse, and a
    text uses one or two of them.
    """

    def __init__(self, root: Path, *, runs: Set[str] | None = None) -> None:
        """Open the warehouse. runs: show only the files of these runs."""
        check_exists(root)
        self.root = root
        self._runs = runs
        self.run_numbers: dict[str, int] = {}
        """Upper bits of the traj_ids of each run, by run_id; a run with a lost row is missing here."""
        self._lock = threading.RLock()
        self._shown: Snapshot | None = None
        """The snapshot behind the views; None when it may be gone."""
        self._attached: set[str] = set()
        self._pack_columns: dict[str, dict[str, list[str]]] = {}
        self._rewinds: list[Rewind] = []
        self._rewinds_of: Snapshot | None = None
        self._warned: set[str] = set()
        self._looked_at: dict[Path, int] = {}
        """Live events files, with their size when their lines were last checked."""
        self._con = duckdb.connect(":memory:", config={"autoinstall_known_extensions": False})
        self._con.execute("SET enable_progress_bar = false")
        # Freed memory goes back at once: a tenth less for a page's server that is asked while a run is written.
        self._con.execute("SET allocator_flush_threshold = '1MB'")
        self._con.execute("SET allocator_bulk_deallocation_flush_threshold = '1MB'")
        # Everything is defined over no files first: files that vanish meanwhile then concern queries alone, which take a
        # new snapshot and try again.
        empty = "CREATE TABLE store.runs AS FROM template.runs"
        for statement in logged_tables([empty, *self.stored(Snapshot())], []):
            self._con.execute(statement)
        self._defined: set[str] = set()

    def define_queries(self, text: str | None = None) -> None:
        """Define the shipped queries and published tables that a text may use, each once. text: None for all of them."""
        statements = shipped_queries()
        names = list(statements) if text is None or dictionary.concerns(text) else used_queries(text)
        with self._lock:
            for tried in range(TRIES):
                try:
                    if tried:
                        self._shown = None
                        self._show(take_snapshot(self.root, self._runs))
                    for name in names:
                        if name not in self._defined:
                            self._con.execute(statements[name])
                            self._defined.add(name)
                    return
                except duckdb.IOException:
                    # A new view reads the files that are shown at that moment, and they may have moved since.
                    if tried == TRIES - 1:
                        raise

    def describe(self) -> None:
        """Add comments to everything, and create the view `dictionary`. It takes a quarter of a second, for texts
        that ask what exists.

        Repeated each time, because DuckDB forgets the comments of a view when its sources are replaced.
        """
        with self._lock:
            self.define_queries()
            for statement in dictionary.statements(self._con):
                self._con.execute(statement)

    def steady(self, ask: Callable[[duckdb.DuckDBPyConnection, QueriedFiles], T], *, may_pin: bool = True) -> T:
        """Run a query again until no file vanished and no rewind arrived during it.

        may_pin: a query whose files move too quickly may read links to them, which are gone when it ends.
        """
        exclusive = False
        latest = Snapshot()
        for tried in range(TRIES):
            pin = may_pin and tried >= UNPINNED_TRIES
            state: QueriedFiles | None = None
            try:
                with (
                    self._lock if exclusive or pin else contextlib.nullcontext(),
                    self._files(pin=pin) as (latest, files),
                ):
                    with self._lock:
                        state, cursor = self._show(files), self._con.cursor()
                    answer = ask(cursor, state)
                    with self._lock:
                        moved = self._shown is not state.snapshot or self._rewound_since(latest, state.rewinds)
            except duckdb.CatalogException:
                # Perhaps a shipped query, or a view or pack that another thread replaced in this moment. Alone, only a
                # real error is left.
                if exclusive:
                    raise
                self.define_queries()
                exclusive = True
            except duckdb.Error as error:
                if not may_be_of_a_file(error):
                    raise
                # Another thread may have pointed the views at an older snapshot. With links the lock excludes that.
                if not pin and state is not None and self._shown is not state.snapshot:
                    continue
                self._raise_unless_moved(error, latest)
            else:
                if not moved:
                    return answer
                continue
            with self._lock:
                self._shown = None
            time.sleep(0.005 * tried)
        raise LogError(
            "warehouse.busy", f"Files in {self.root} moved during the query {TRIES} times. Ask again in a moment."
        )

    def fetch_locked(
        self,
        text: str,
        params: dict[str, Any],
        rows: int,
        settings: Iterable[str],
        limit: Callable[[], None],
        *,
        pin: bool = False,
    ) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
        """Return columns, their types and at most `rows` rows of one untrusted statement; afterwards the connection
        is locked (see `sandbox`).

        limit: called after setup and before the query. pin: hold the files by links.
        """
        with self._files(pin=pin) as (latest, files):
            try:
                self._show(files)
                if dictionary.concerns(text):
                    self.describe()
                allowed = [*files.files(), *self._trials()]
                for setting in [
                    # Every thread keeps buffers for each list of live files.
                    f"SET threads = {min(MAX_THREADS, os.cpu_count() or 1)}",
                    *settings,
                    f"SET allowed_paths = {file_list(allowed)}",
                    "SET enable_external_access = false",
                    "SET lock_configuration = true",
                ]:
                    self._con.execute(setting)
                limit()
                # Not through a cursor: some settings are those of one connection, and a cursor is another.
                return fetch_rows(self._con, text, params, rows)
            except duckdb.Error as error:
                if may_be_of_a_file(error):
                    self._raise_unless_moved(error, latest)
                raise

    def stored(self, snapshot: Snapshot) -> list[str]:
        """Return SQL of the views of schema `store`, except `runs`."""
        by_view = {table: self.source(table, snapshot) for table in schema.LOGGED}
        by_view |= {"credited_turns": scan.credited(snapshot), "trials": scan.trials(self._trials())}
        return [f"CREATE OR REPLACE VIEW store.{view} AS {source}" for view, source in by_view.items()]

    def source(
        self,
        table: str,
        snapshot: Snapshot,
        only: Collection[str] | None = None,
        where: str = "",
        *,
        scattered: bool = False,
    ) -> str:
        """Return SQL for a logged table's rows in the files of a snapshot, see `scan.rows`."""
        packs = {
            alias(pack): self._pack_columns[pack].get(table, []) if entry["rows"].get(table, 1) else []
            for pack, entry in snapshot.packs.items()
        }
        return scan.rows(table, snapshot, packs, only=only, where=where, scattered=scattered)

    def turns_of(
        self,
        state: QueriedFiles,
        traj_ids: Collection[int],
        only: Collection[str],
        where: str,
        *,
        scattered: bool = False,
    ) -> str:
        """Return SQL that gives these trajectories as the view `turns` does, from the few files that can hold them.

        Planning a query over all files takes longer than reading some turns by their ids. only: the columns to read;
        the columns that locate a turn are added. where: a condition on traj_id and turn.
        """
        files = self.files_of(state.snapshot, "turns", traj_ids)
        needed = {*only, "traj_id", "turn", "run_id", "incarnation", "stage", "step", "phase"}
        if not needed & {"shaped", "advantage"}:
            turns = self.source("turns", files, needed, where, scattered=scattered)
        else:
            turns = self.source("turns", files, needed | {"shaped", "advantage"}, where, scattered=scattered)
            turns = scan.credited(files, turns, self.source("credits", files, None, where))
        return superseded.visible(turns, state.rewinds)

    def rows_of(self, state: QueriedFiles, table: str, traj_ids: Collection[int]) -> str:
        """Return SQL for all rows of some trajectories in a logged table, including superseded ones, from the few
        files that can hold them.
        """
        files = self.files_of(state.snapshot, table, traj_ids)
        where = f"traj_id IN ({', '.join(map(str, traj_ids)) or 'NULL'})"
        rows = self.source(table, files, where=where)
        return scan.credited(files, rows, self.source("credits", files, where=where)) if table == "turns" else rows

    def files_of(self, snapshot: Snapshot, table: str, traj_ids: Collection[int]) -> Snapshot:
        """Return the few files of a snapshot that can hold rows of some trajectories in a logged table."""
        run_ids: dict[int, list[str]] = {}
        for run_id, number in self.run_numbers.items():
            run_ids.setdefault(number, []).append(run_id)
        # A run whose row is lost has no number; its rows may be anywhere.
        if not all(i >> 40 in run_ids for i in traj_ids):
            return snapshot
        writers = {(run_id, i >> 24 & 0xFFFF) for i in traj_ids for run_id in run_ids[i >> 40]}
        return snapshot.of_writers(table, writers)

    def close(self) -> None:
        """Release files and memory."""
        self._con.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _files(self, *, pin: bool) -> Iterator[tuple[Snapshot, Snapshot]]:
        """Yield the current snapshot and the files to read: the same, or links. The lock must be held for links."""
        if not pin:
            latest = take_snapshot(self.root, self._runs)
            yield latest, latest
            return
        with pinned(self.root, self._runs) as both:
            try:
                yield both
            finally:
                self._shown = None  # the links are about to go

    def _trials(self) -> list[Path]:
        return sorted((self.root / "trials").glob("*.jsonl"))

    def _raise_unless_moved(self, error: duckdb.Error, snapshot: Snapshot) -> None:
        """Return when files moved since the snapshot; otherwise raise the cause: a damaged file, or the query."""
        moved = (
            isinstance(error, duckdb.IOException) and take_snapshot(self.root, self._runs).contents != snapshot.contents
        )
        if not moved:
            raise file_fault(self.root, snapshot, error) or error

    def _show(self, latest: Snapshot) -> QueriedFiles:
        """Point the views at a snapshot and its rewinds. The lock must be held."""
        self._load_runs(latest)
        for pack in latest.packs.keys() - self._attached:
            self._attach(pack)
        for pack in self._attached - latest.packs.keys():
            self._shown = None  # whatever stops us before the new snapshot is shown: the old one is gone
            self._attached.remove(pack)
            self._con.execute(f"DETACH {alias(pack)}")
        if self._shown is None or latest.contents != self._shown.contents:
            for statement in self.stored(latest):
                self._con.execute(statement)
            self._shown = latest
        rewinds = self._read_rewinds()
        if rewinds != self._rewinds:
            for statement in superseded.definitions(rewinds):
                self._con.execute(statement)
            self._rewinds = rewinds
        return QueriedFiles(self._shown, rewinds)

    def _load_runs(self, snapshot: Snapshot) -> None:
        types = schema.types("runs")
        insert = f"INSERT INTO store.runs ({', '.join(types)}) VALUES ({', '.join('?' * len(types))})"
        for folder in snapshot.runs:
            run_id = folder.name.removeprefix("run=")
            if run_id not in self.run_numbers:
                # One run's broken row must not hide the others.
                try:
                    row = read_run(folder)
                except LogError as error:
                    self._warn({left_out(error)})
                else:
                    if row is not None:
                        self._con.execute(insert, list(fitting(types, row)[0].values()))
                        self.run_numbers[run_id] = row["run_no"]

    def _attach(self, pack: str) -> None:
        self._con.execute(f"ATTACH {literal(str(self.root / 'packs' / pack))} AS {alias(pack)} (READ_ONLY)")
        columns: dict[str, list[str]] = {}
        for table, column in self._con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = ? AND NOT internal",
            [alias(pack)],
        ).fetchall():
            if table in schema.LOGGED and column in schema.types(table):
                columns.setdefault(table, []).append(column)
        self._attached.add(pack)
        self._pack_columns[pack] = columns

    def _read_rewinds(self) -> list[Rewind]:
        snapshot = self._shown
        if snapshot is not None and not snapshot.live.get("events") and self._rewinds_of is snapshot:
            # Sealed and packed events do not change: what was read for this snapshot still holds.
            return self._rewinds
        self._rewinds_of = snapshot
        rows = self._con.cursor().execute(
            "SELECT run_id, incarnation, stage, step, kind, fields FROM store.events "
            f"WHERE kind IN ({', '.join(map(literal, superseded.KINDS))}) ORDER BY ALL"
        )
        rewinds, sentences = superseded.readable(rows.fetchall())
        for path in snapshot.live.get("events", []) if snapshot is not None else []:
            with contextlib.suppress(FileNotFoundError):  # sealed meanwhile
                size = path.stat().st_size
                if self._looked_at.get(path) != size and (count := superseded.unreadable_lines(path)):
                    sentences.append(f"{count} lines of {path} cannot be read; {superseded.ADVICE}")
                self._looked_at[path] = size
        self._warn(set(sentences))
        return rewinds

    def _warn(self, sentences: set[str]) -> None:
        for sentence in sorted(sentences - self._warned):
            warnings.warn(sentence, stacklevel=2)
        self._warned |= sentences

    def _rewound_since(self, latest: Snapshot, rewinds: list[Rewind]) -> bool:
        """Return True if a rewind may have arrived since the snapshot: the answer could contain rows after it."""
        known_segments = {segment_of(path) for form in (latest.live, latest.sealed) for path in form.get("events", [])}
        now = take_snapshot(self.root, self._runs)
        added = [path for path in now.live.get("events", []) if segment_of(path) not in known_segments]
        sealed = any(segment_of(path) not in known_segments for path in now.sealed.get("events", []))
        return sealed or any(map(superseded.may_rewind, added)) or self._read_rewinds() != rewinds


def alias(pack: str) -> str:
    """Return the database name of an attached pack."""
    return f"pack_{pack.removesuffix('.duckdb').replace('-', '_')}"
