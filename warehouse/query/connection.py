"""Reading while others write: an in-memory DuckDB over packs, sealed segments and live files.

Every query takes a fresh list of files, so it sees what was logged before it began, by this process and by others. A
file that is sealed or packed away under a query, or a rewind that arrives during it, makes the query run again. Results
are held in memory: a relation that was returned stays as it was, whatever happens on disk afterwards.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from userrl_core.errors import ConfigError, LogError
from userrl_core.suggest import nearest
from warehouse import hits, schema, search, views
from warehouse.files.encode import fitting
from warehouse.files.layout import Snapshot, default_root, snapshot
from warehouse.files.runs import find_run, read_run
from warehouse.query import scan as sources
from warehouse.query.fetch import FILE_ERRORS, damage, fetch
from warehouse.query.point_lookup import rows_of, standing_turns
from warehouse.query.sandbox import check_statement
from warehouse.query.scan import quote
from warehouse.query.superseded import Rewind, statements
from warehouse.reference import reference_statements

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

TRIES = 40
"""How often a query is run again because files moved under it; each try takes a new list."""

MOST_THREADS = 8
"""Most threads of an untrusted question, whose memory is limited."""


def open_warehouse(path: Path | str | None = None, read_only: bool = True) -> Warehouse:
    """The warehouse at `path` (default: `default_root()`) for Python.

    read_only: with True only queries are taken (SELECT, DESCRIBE, EXPLAIN ...); with False scratch tables and views may
    be made too. They live in memory only: nothing here ever changes the stored rows.
    Raises ConfigError where there is no warehouse.
    """
    root = Path(path) if path is not None else default_root()
    if not root.is_dir():
        raise ConfigError(f"There is no warehouse at {root}; start a run with `make run`, or name its folder.")
    return Warehouse(root, read_only=read_only)


class Warehouse:
    """Open for reading. Thread-safe: each query has a cursor of its own."""

    def __init__(self, root: Path, *, read_only: bool = True) -> None:
        self.root = root
        self.read_only = read_only
        self._lock = threading.RLock()
        self._seen: Snapshot | None = None
        self._listed = Snapshot()
        self._runs: dict[str, int] = {}
        self._packs: dict[str, str] = {}
        self._pack_columns: dict[str, dict[str, list[str]]] = {}
        self._rewinds: list[Rewind] | None = None
        self._rewinds_of: Snapshot | None = None
        self._asked: list[str] | None = None
        self._con = duckdb.connect(":memory:", config={"autoinstall_known_extensions": False})
        self._con.execute("SET enable_progress_bar = false")
        # Results live in a database of their own, so that a relation outlives the warehouse it came from.
        self._results = duckdb.connect(":memory:")
        self._con.execute("CREATE SCHEMA store; CREATE SCHEMA template; CREATE SCHEMA reference")
        self._con.execute("USE template")
        for _, text in schema.scripts():
            self._con.execute(text)
        self._con.execute("USE main")
        self._con.execute("CREATE TABLE store.runs AS FROM template.runs")
        for statement in reference_statements():
            self._con.execute(statement)
        # Everything is defined over an empty list first: files that vanish meanwhile then concern queries alone, which
        # take a new list and try again.
        self._define(Snapshot())
        base, *topics = views.scripts()
        self._con.execute(base[1])
        self._apply([])
        for _, text in topics:
            self._con.execute(text)
        for query in views.queries().values():
            if None not in query.params.values():
                self._con.execute(f"CREATE OR REPLACE VIEW {query.name} AS FROM {query.name}()")

    def sql(self, text: str, **params: Any) -> duckdb.DuckDBPyRelation:
        """Run one statement and return its result as a relation (`.pl()`, `.df()`, `.fetchall()`), held in memory.

        params: values of ``$name`` in the text. Raises duckdb.Error for bad SQL, Refused for what only reads may not do.
        """
        if self.read_only:
            check_statement(text)
        table = self.arrow(text, **params)
        return self._results.cursor().from_arrow(table)

    def arrow(self, text: str, **params: Any) -> pa.Table:
        """Like `sql`, as an Arrow table."""
        return self._steady(lambda cursor: fetch(cursor, text, params))

    def query(self, name: str, **params: Any) -> duckdb.DuckDBPyRelation:
        """A shipped query by name (`queries()` lists them), parameters by keyword; `run` takes any run name or latest."""
        known = views.queries().get(name)
        if known is None:
            raise ConfigError(f"There is no query {name!r}.{nearest(name, views.queries())}")
        # In SQL a parameter must not be named as a column is, so `phase` is called `in_phase` there.
        spelt = {key.split("_", 1)[1]: key for key in known.params if key.startswith(("in_", "of_", "with_"))}
        params = {spelt.get(key, key): value for key, value in params.items()}
        for key in params:
            if key not in known.params:
                raise ConfigError(f"Query {name} takes no {key!r}; it takes {', '.join(known.params) or 'nothing'}.")
        if missing := [key for key, default in known.params.items() if default is None and key not in params]:
            raise ConfigError(f"Query {name} needs {missing[0]}=...")
        if isinstance(params.get("run"), str):
            row = find_run(self.root, params["run"])
            params["run"] = row["run_id"]
            for key in known.params:
                # Settings of re-scoring that were not given are the run's own.
                if key.startswith("with_"):
                    params.setdefault(key, row[key.removeprefix("with_")])
        if name == "trajectory" and type(params["id"]) is int:
            found = self._steady(lambda cursor: self._trajectory(cursor, params["id"]))
            return self._results.cursor().from_arrow(found)
        arguments = ", ".join(f"{key} := ${key}" for key in params)
        return self._results.cursor().from_arrow(self.arrow(f"FROM {name}({arguments})", **params))

    def search(
        self, text: str, *, limit: int = 20, run: str | None = None, seconds: float = 60.0
    ) -> duckdb.DuckDBPyRelation:
        """Turns whose thought, content, observation or message matches (words, "a phrase", AND, OR, NEAR), newest first.

        Superseded turns are left out. The index reaches up to the last compaction; `unindexed()` counts later turns.
        Raises ConfigError when there is no index yet, and after `seconds` without enough matches.
        """
        if limit < 1:
            raise ConfigError(f"A search finds at least one turn; limit={limit} asks for none.")
        wanted = None
        if run is not None:
            run_id = find_run(self.root, run)["run_id"]
            numbers = self._steady(lambda _: dict(self._runs))
            own = numbers.pop(f"run={run_id}", None)
            wanted = hits.Wanted(run_id, frozenset(set(numbers.values()) - {own}))
        return self._results.cursor().from_arrow(hits.newest(self, text, limit, wanted, seconds))

    def turns_at(self, keys: Sequence[tuple[int, int]], columns: Sequence[str]) -> pa.Table:
        """Some columns of the turns (traj_id, turn) as they stand now, in the order of `keys`; superseded ones left out."""
        ids = sorted({traj_id for traj_id, _ in keys})
        first, last = (ids[0], ids[-1]) if ids else (0, 0)
        pairs = ", ".join(map(str, keys)) or "(NULL, NULL)"
        ranks = ", ".join(f"({traj_id}, {turn}, {rank})" for rank, (traj_id, turn) in enumerate(keys))
        # The range lets most of a pack be skipped, which a list does not.
        where = f"traj_id BETWEEN {first} AND {last} AND (traj_id, turn) IN ({pairs})"
        placed = f"(VALUES {ranks or '(NULL, NULL, NULL)'}) h(traj_id, turn, rank) USING (traj_id, turn)"

        def ask(cursor: duckdb.DuckDBPyConnection) -> pa.Table:
            rows = self._turns_of(ids, columns, where, scattered=True)
            text = f"SELECT {', '.join(columns)} FROM ({rows}) t JOIN {placed} ORDER BY h.rank"
            return rows_of(cursor, text, columns)

        return self._steady(ask)

    def unindexed(self) -> int:
        """How many turns the text index does not know yet."""
        marked = ", ".join(f"({quote(run)}, {writer}, {seq})" for run, writer, seq in search.marks(self.root))
        count = "SELECT count(*) AS n FROM store.turns t"
        if marked:
            count += (
                f" LEFT JOIN (VALUES {marked}) m(run_id, writer, seq) USING (run_id, writer) "
                "WHERE t.seq > coalesce(m.seq, 0)"
            )
        return int(self.arrow(count).column(0)[0].as_py())

    def stored_turns(self, marks: list[tuple[str, int, int]], batch: int) -> Iterator[Iterable[tuple[Any, ...]]]:
        """Batches of (traj_id, turn, run_id, writer, seq, text): sealed and packed turns beyond the marks, in key order.

        For the text index; the caller holds the compactor's lock, so files stay where they are.
        """
        marked = ", ".join(f"({quote(run)}, {writer}, {seq})" for run, writer, seq in marks)
        self._refresh()
        assert self._seen is not None
        kept = Snapshot(sealed=self._seen.sealed, packs=self._seen.packs)
        limits = f"(VALUES {marked})" if marked else "(SELECT NULL, NULL, NULL WHERE false)"
        reader = (
            self._con.cursor()
            .sql(
                f"SELECT t.traj_id, t.turn, t.run_id, t.writer, t.seq, {search.TEXT} AS body "
                f"FROM ({self._source('turns', kept)}) t "
                f"LEFT JOIN {limits} m(run_id, writer, seq) ON m.run_id = t.run_id AND m.writer = t.writer "
                "WHERE t.seq > coalesce(m.seq, 0) ORDER BY t.traj_id, t.turn"
            )
            .to_arrow_reader(batch)
        )
        for part in reader:
            yield zip(*(column.to_pylist() for column in part.columns), strict=True)

    def packed(self, table: str) -> str:
        """SQL for the packed rows of a logged table, nothing joined to them: what `export` copies."""
        with self._lock:
            self._steady(lambda _: None)
            assert self._seen is not None
            return self._source(table, Snapshot(packs=self._seen.packs))

    def described(self) -> tuple[dict[str, str], dict[str, str], list[Rewind], list[Path]]:
        """What a client needs to see the same: packs by alias, SQL per stored table, rewinds, and the runs' files."""
        with self._lock:
            self._steady(lambda _: None)
            assert self._seen is not None
            made = {table: self._source(table, self._seen) for table in schema.LOGGED}
            made["credited_turns"] = sources.credited(self._seen)
            made["trials"] = sources.trials(self.root)
            files = [folder / "run.json" for folder in self._seen.runs if folder.name in self._runs]
            return dict(self._packs), made, self._read_rewinds(), files

    def queries(self) -> dict[str, views.Query]:
        """The shipped queries with their descriptions and parameters."""
        return views.queries()

    def locked_answer(self, text: str, params: dict[str, Any], rows: int, settings: list[str]) -> pa.Table:
        """At most `rows` rows of one untrusted statement; afterwards this warehouse answers nothing else (see `safe`)."""
        try:
            self._refresh()
            self._apply(self._read_rewinds())
            allowed = [str(p) for p in [*self._listed.files(), *(self.root / "trials").glob("*.jsonl")]]
            for setting in [
                # Every thread keeps buffers for each list of live files.
                f"SET threads = {min(MOST_THREADS, os.cpu_count() or 1)}",
                *settings,
                f"SET allowed_paths = [{', '.join(map(quote, allowed))}]",
                "SET enable_external_access = false",
                "SET lock_configuration = true",
            ]:
                self._con.execute(setting)
            return fetch(self._con.cursor(), text, params, rows)
        except FILE_ERRORS as error:
            self._blame(error, self._listed)
            raise

    def close(self) -> None:
        """Let go of files and memory; relations that were returned live on."""
        self._con.close()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _steady(self, ask: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Ask until no file vanished and no rewind arrived meanwhile."""
        alone = False
        for attempt in range(TRIES):
            listed = None
            try:
                with self._lock if alone else contextlib.nullcontext():
                    with self._lock:
                        self._refresh()
                        listed, rewinds = self._listed, self._read_rewinds()
                        self._apply(rewinds)
                        cursor = self._con.cursor()
                    answer = ask(cursor)
                with self._lock:
                    moved = self._rewound_since(listed, rewinds)
            except duckdb.CatalogException:
                # It may be a view that another thread replaced in this moment; without the others a real one comes again.
                if alone:
                    raise
                alone = True
            except FILE_ERRORS as error:
                self._blame(error, listed or self._listed)
            else:
                if not moved:
                    return answer
                continue
            with self._lock:
                self._seen = None
            time.sleep(0.005 * attempt)
        raise LogError(f"Files in {self.root} moved under the query {TRIES} times; ask again in a moment.")

    def _blame(self, error: duckdb.Error, listed: Snapshot) -> None:
        """Return when files moved since the list was taken; else raise what is wrong: a damaged file, or the question."""
        vanished = isinstance(error, duckdb.IOException) and _files(snapshot(self.root)) != _files(listed)
        if not vanished:
            raise damage(self.root, listed, error) or error

    def _refresh(self) -> None:
        seen = self._listed = snapshot(self.root)
        self._load_runs(seen)
        for pack in seen.packs:
            if pack not in self._packs:
                self._attach(pack)
        for pack in [pack for pack in self._packs if pack not in seen.packs]:
            self._seen = None  # whatever stops us before the new list is in force: the old one is no more
            self._con.execute(f"DETACH {self._packs.pop(pack)}")
            self._pack_columns.pop(pack)
        if self._seen is not None and _files(seen) == _files(self._seen):
            return
        self._define(seen)
        self._seen = seen

    def _define(self, seen: Snapshot) -> None:
        for table in schema.LOGGED:
            self._con.execute(f"CREATE OR REPLACE VIEW store.{table} AS {self._source(table, seen)}")
        self._con.execute(f"CREATE OR REPLACE VIEW store.credited_turns AS {sources.credited(seen)}")
        self._con.execute(f"CREATE OR REPLACE VIEW store.trials AS {sources.trials(self.root)}")

    def _source(
        self,
        table: str,
        seen: Snapshot,
        only: Collection[str] | None = None,
        where: str = "",
        *,
        scattered: bool = False,
    ) -> str:
        packs = {
            self._packs[pack]: self._pack_columns[pack].get(table, []) if entry["rows"].get(table, 1) else []
            for pack, entry in seen.packs.items()
        }
        return sources.rows(table, seen, packs, only=only, where=where, scattered=scattered)

    def _turns_of(self, ids: list[int], only: Collection[str], where: str, *, scattered: bool = False) -> str:
        with self._lock:
            if self._seen is None:
                # Another thread's question found files gone since this one took its list.
                self._refresh()
                self._apply(self._read_rewinds())
            assert self._seen is not None
            return standing_turns(
                self._source, self._seen, self._runs, self._rewinds or [], ids, only, where, scattered=scattered
            )

    def _trajectory(self, cursor: duckdb.DuckDBPyConnection, traj_id: int) -> pa.Table:
        if self._asked is None:
            self._asked = cursor.sql("FROM trajectory(id := 0)").columns
        rows = self._turns_of([traj_id], self._asked, f"traj_id = {traj_id}")
        return rows_of(cursor, f"SELECT {', '.join(self._asked)} FROM ({rows}) ORDER BY turn", self._asked)

    def _load_runs(self, seen: Snapshot) -> None:
        kinds = {column.name: column.type for column in schema.tables()["runs"].columns.values()}
        insert = f"INSERT INTO store.runs ({', '.join(kinds)}) VALUES ({', '.join('?' * len(kinds))})"
        for folder in seen.runs:
            if folder.name not in self._runs:
                # One run's broken row must not hide the others: `check` tells it.
                with contextlib.suppress(LogError):
                    if (row := read_run(folder)) is not None:
                        self._con.execute(insert, list(fitting(kinds, row)[0].values()))
                        self._runs[folder.name] = row["run_no"]

    def _attach(self, pack: str) -> None:
        alias = f"pack_{pack.removesuffix('.duckdb').replace('-', '_')}"
        path = str(self.root / "packs" / pack).replace("'", "''")
        self._con.execute(f"ATTACH '{path}' AS {alias} (READ_ONLY)")
        found: dict[str, list[str]] = {}
        for table, column in self._con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = ? AND NOT internal", [alias]
        ).fetchall():
            if table in schema.LOGGED and column in schema.tables()[table].columns:
                found.setdefault(table, []).append(column)
        self._packs[pack], self._pack_columns[pack] = alias, found

    def _read_rewinds(self) -> list[Rewind]:
        seen = self._seen
        if seen is not None and not seen.live.get("events") and self._rewinds_of is seen:
            # Sealed and packed events do not change: what was read for this list still holds.
            return self._rewinds or []
        self._rewinds_of = seen
        rows = self._con.cursor().execute(
            "SELECT run_id, incarnation, stage, step FROM store.events WHERE kind = 'rewind' ORDER BY ALL"
        )
        return [Rewind(*row) for row in rows.fetchall()]

    def _rewound_since(self, listed: Snapshot, rewinds: list[Rewind]) -> bool:
        """Whether a rewind may have arrived since the list was taken: rows after it could be in the answer."""
        if self._seen is None:
            # Another thread's question found files gone.
            return True
        known = {path for form in (listed.live, listed.sealed) for path in form.get("events", [])}
        fresh = set(snapshot(self.root).live.get("events", [])) - known
        return bool(fresh) or self._read_rewinds() != rewinds

    def _apply(self, rewinds: list[Rewind]) -> None:
        if rewinds == self._rewinds:
            return
        for statement in statements(rewinds):
            self._con.execute(statement)
        self._rewinds = rewinds


def _files(seen: Snapshot) -> tuple[object, ...]:
    return (seen.live, seen.sealed, list(seen.packs))
