"""The warehouse for Python: SQL, named queries and text search over all logged data.

Results are held in memory: a returned relation never changes, whatever happens on disk afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import duckdb
import orjson

from userrl_core.errors import ConfigError
from userrl_core.suggest import nearest
from warehouse import views
from warehouse.files.layout import Segment, Snapshot, default_root, segment_of, segments_of
from warehouse.files.runs import find_run
from warehouse.query import dictionary
from warehouse.query.connection import Connection, QueriedFiles
from warehouse.query.fetch import distinct_names, fetch, fetch_turns
from warehouse.query.run_names import with_run_ids
from warehouse.query.scratch import scratch
from warehouse.query.statements import check_statement
from warehouse.search import index

if TYPE_CHECKING:
    import pyarrow as pa

INDEXED_BYTES = 32 * 2**20
"""Text in one batch for the text index, to within one turn. Arrow and SQLite are limited to 1 to 2 GiB, and memory
may be less.
"""

_PARTS = """
WITH sized AS (SELECT traj_id, turn, sum({bytes}) AS bytes FROM ({turns}) GROUP BY traj_id, turn),
placed AS (SELECT traj_id, turn, (sum(bytes) OVER (ORDER BY traj_id, turn) - 1) // {most} AS part FROM sized)
SELECT min([traj_id, turn]), max([traj_id, turn]), list(DISTINCT traj_id >> 24) FROM placed GROUP BY part ORDER BY part
"""

SEARCH_SECONDS = 5.0
"""Maximum seconds that a list waits for its text search."""


def open_warehouse(
    path: Path | str | None = None,
    read_only: bool = True,
    run: str | Collection[str] | None = None,
) -> Warehouse:
    """Open the warehouse at `path` (default: `default_root()`).

    read_only: True accepts only queries (SELECT, DESCRIBE, EXPLAIN ...); False also allows scratch tables and views.
    These exist in memory only: stored rows never change. run: one or more ids, to query only these runs and not pay
    for the others. Rows of other runs may or may not be present. Raises ConfigError for a missing warehouse.
    """
    runs = frozenset([run]) if isinstance(run, str) else None if run is None else frozenset(run)
    return Warehouse(Path(path) if path is not None else default_root(), read_only=read_only, runs=runs)


class Warehouse:
    """A warehouse opened for reading. Thread-safe."""

    def __init__(self, root: Path, *, read_only: bool = True, runs: Set[str] | None = None) -> None:
        """Open the warehouse. The shipped queries are defined when a text first needs them."""
        self.root = root
        self.read_only = read_only
        self._connection = Connection(root, runs=runs)
        if not read_only:  # a scratch view may use them, and its own text does not show it
            self._connection.define_queries()
        self._trajectory_columns: list[str] = []

    def sql(self, text: str, **params: Any) -> duckdb.DuckDBPyRelation:
        """Run one statement and return its result as a relation (`.pl()`, `.df()`, `.fetchall()`), held in memory.

        params: values of ``$name`` in the text. ``run := 'latest'``, a name or the beginning of an id work as in
        `query`. Raises duckdb.Error for bad SQL, Refused for a statement that does more than read.
        """
        if self.read_only:
            check_statement(text)
        return self._relation(self.arrow(with_run_ids(self.root, text), **params))

    def arrow(self, text: str, **params: Any) -> pa.Table:
        """Run one statement like `sql`, and return an Arrow table."""

        def ask(cursor: duckdb.DuckDBPyConnection, _: QueriedFiles) -> pa.Table:
            if dictionary.concerns(text):
                self._connection.describe()
            return fetch(cursor, text, params)

        self._connection.define_queries(text)
        return self._connection.steady(ask)

    def rows(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        """Return the rows of one statement of ours. It is planned once, so it is faster than `arrow` for few rows."""
        self._connection.define_queries(sql)
        return self._connection.steady(lambda cursor, _: _dictionaries(cursor.execute(sql, params or None)))

    def query(self, name: str, **params: Any) -> duckdb.DuckDBPyRelation:
        """Run a shipped query by name (`queries()` lists them), parameters by keyword; `run` takes any run name or latest."""
        shipped = views.queries().get(name)
        if shipped is None:
            raise ConfigError("warehouse.unknown_query", f"There is no query {name!r}.{nearest(name, views.queries())}")
        # In SQL a parameter must not be named as a column is, so `phase` is called `in_phase` there.
        spelt = {key.split("_", 1)[1]: key for key in shipped.params if key.startswith(("in_", "of_", "with_"))}
        params = {spelt.get(key, key): value for key, value in params.items()}
        for key in params:
            if key not in shipped.params:
                raise ConfigError(
                    "warehouse.unknown_query",
                    f"Query {name} has no parameter {key!r}. It has {', '.join(shipped.params) or 'none'}.",
                )
        if missing := [key for key, default in shipped.params.items() if default is None and key not in params]:
            raise ConfigError("warehouse.unknown_query", f"Query {name} needs {missing[0]}=... . Give it.")
        if isinstance(params.get("run"), str):
            run = find_run(self.root, params["run"])
            params["run"] = run["run_id"]
            for key in shipped.params:
                # Settings of re-scoring that were not given are the run's own.
                if key.startswith("with_"):
                    params.setdefault(key, _setting(run, key.removeprefix("with_"), shipped.params[key]))
        if name == "trajectory" and type(params["id"]) is int:
            return self._relation(self._trajectory(params["id"]))
        arguments = ", ".join(f"{key} := ${key}" for key in params)
        return self._relation(self.arrow(f"FROM {name}({arguments})", **params))

    def queries(self) -> dict[str, views.Query]:
        """Return the shipped queries with their descriptions and parameters."""
        return views.queries()

    def search(
        self, text: str, *, limit: int = 20, run: str | None = None, seconds: float = 60.0
    ) -> duckdb.DuckDBPyRelation:
        """Return turns whose thought, content, observation or message matches (words, "a phrase", AND, OR, NEAR),
        newest first.

        Superseded turns are left out. The index covers turns up to the last compaction; `unindexed()` counts later
        turns. Raises ConfigError without an index, and after `seconds` without enough matches.
        """
        if limit < 1:
            raise ConfigError("argument.out_of_range", f"limit={limit} asks for no turn. Give 1 or more.")
        hits = index.search(self.root, self.turns_at, text, limit=limit, run=self._only(run), seconds=seconds)
        return self._relation(hits)

    def _only(self, run: str | None) -> index.RunFilter | None:
        if run is None:
            return None
        run_id = find_run(self.root, run)["run_id"]
        numbers = self._connection.steady(lambda *_: dict(self._connection.run_numbers))
        own_number = numbers.pop(run_id, None)
        return index.RunFilter(run_id, frozenset(set(numbers.values()) - {own_number}))

    def turns_at(self, keys: Sequence[tuple[int, int]], columns: Sequence[str]) -> pa.Table:
        """Return some columns of the turns (traj_id, turn), in the order of `keys`; superseded ones are left out."""
        ids, numbers = sorted({traj_id for traj_id, _ in keys}), sorted({turn for _, turn in keys})
        ranked = ", ".join(f"({traj_id}, {turn}, {rank})" for rank, (traj_id, turn) in enumerate(keys))
        # Plain lists, which DuckDB compares with what files say of their parts; pairs it would not.
        where = f"traj_id IN ({_listed(ids)}) AND turn IN ({_listed(numbers)})"
        order = f"(VALUES {ranked or '(NULL, NULL, NULL)'}) h(traj_id, turn, rank) USING (traj_id, turn)"

        def ask(cursor: duckdb.DuckDBPyConnection, state: QueriedFiles) -> pa.Table:
            turns = self._connection.turns_of(state, ids, columns, where, scattered=True)
            # Materialized: else DuckDB joins the keys first, and reads the text of every turn in a pack to do so.
            with_clause = f"WITH found AS MATERIALIZED ({turns}) SELECT {', '.join(columns)} FROM found"
            text = f"{with_clause} JOIN {order} ORDER BY h.rank"
            return fetch_turns(cursor, text, columns)

        return self._connection.steady(ask)

    def stored(self, table: str, traj_ids: Sequence[int], columns: str = "*") -> list[dict[str, Any]]:
        """Return rows of some trajectories in `turns`, `trajectories` or `model_calls`, including superseded ones, unordered."""

        def ask(cursor: duckdb.DuckDBPyConnection, state: QueriedFiles) -> list[dict[str, Any]]:
            return _dictionaries(
                cursor.execute(f"SELECT {columns} FROM ({self._connection.rows_of(state, table, traj_ids)})")
            )

        return self._connection.steady(ask)

    def trajectories_with(self, text: str, *, limit: int, run: str | None = None) -> list[int]:
        """Return ids of trajectories with a matching turn, including superseded ones.

        Indexed turns match as in `search` (the newest `limit` of them). Later turns match if they contain the literal
        text, in any case.
        """
        traj_ids: list[int] = []
        indexed = index.indexed_segments(self.root)
        if indexed:
            traj_ids = index.trajectories(self.root, text, limit=limit, run=self._only(run), seconds=SEARCH_SECONDS)

        def ask(cursor: duckdb.DuckDBPyConnection, state: QueriedFiles) -> list[tuple[int]]:
            turns = self._connection.source("turns", state.snapshot.without("turns", indexed))
            where = f"($run IS NULL OR run_id = $run) AND contains(lower({index.TEXT}), lower($words))"
            later = f"SELECT DISTINCT traj_id FROM ({turns}) WHERE {where} LIMIT {limit}"
            return cursor.execute(later, {"run": run, "words": text.strip('"')}).fetchall()

        return list(dict.fromkeys([*traj_ids, *(traj_id for (traj_id,) in self._connection.steady(ask))]))

    def unindexed(self) -> int:
        """Return the number of turns that the text index may lack. A partly indexed pack counts with all its turns."""
        indexed = index.indexed_segments(self.root)

        def ask(cursor: duckdb.DuckDBPyConnection, state: QueriedFiles) -> int:
            turns = self._connection.source("turns", state.snapshot.without("turns", indexed), ["traj_id"])
            return int(cursor.execute(f"SELECT count(*) FROM ({turns})").fetchall()[0][0])

        return self._connection.steady(ask)

    def turns_beyond(self, indexed: Set[Segment], *, most_bytes: int = INDEXED_BYTES) -> index.StoredTurns | None:
        """Return the turns for the text index (`index.TurnsBeyond`). The caller holds the compactor's lock, so files
        stay in place.

        most_bytes: text in one batch, to within one turn. The text is read twice: first its length, to cut the
        batches, then each batch.
        """

        def ask(cursor: duckdb.DuckDBPyConnection, state: QueriedFiles) -> tuple[Snapshot, list[tuple[Any, ...]]]:
            stored = Snapshot(sealed=state.snapshot.sealed, packs=state.snapshot.packs).without("turns", indexed)
            turns = self._connection.source("turns", stored)
            text = _PARTS.format(turns=turns, bytes=index.TEXT_BYTES, most=most_bytes)
            return stored, cursor.execute(text).fetchall()

        stored, parts = self._connection.steady(ask, may_pin=False)  # its answer is read later
        segments = {segment_of(path) for path in stored.sealed["turns"]}
        segments |= {segment for entry in stored.packs.values() for segment in segments_of(entry, "turns")}
        if not segments.isdisjoint(indexed):
            return None
        return index.StoredTurns(segments, (self._texts(stored, *part) for part in parts))

    def _texts(
        self, stored: Snapshot, first: list[int], last: list[int], writers: list[int]
    ) -> list[tuple[int, int, str]]:
        """Return (traj_id, turn, text) of the turns from one key to another, in order. writers: the traj_ids' upper bits."""
        files = self._connection.files_of(stored, "turns", [writer << 24 for writer in writers])
        where = (
            f"traj_id BETWEEN {first[0]} AND {last[0]} AND (traj_id > {first[0]} OR turn >= {first[1]}) "
            f"AND (traj_id < {last[0]} OR turn <= {last[1]})"
        )
        turns = self._connection.source("turns", files, ["traj_id", "turn", *index.TEXT_COLUMNS], where)
        text = f"SELECT traj_id, turn, {index.TEXT} AS body FROM ({turns}) ORDER BY traj_id, turn"
        return self._connection.steady(lambda cursor, _: cursor.execute(text).fetchall(), may_pin=False)

    def packed(self, table: str) -> str:
        """Return SQL for the packed rows of a logged table, without joins: the input of `export`."""
        return self._connection.steady(
            lambda _, state: self._connection.source(table, Snapshot(packs=state.snapshot.packs))
        )

    def close(self) -> None:
        """Release files and memory; returned relations stay valid."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _relation(self, table: pa.Table) -> duckdb.DuckDBPyRelation:
        return scratch().from_arrow(table)  # outlives this warehouse

    def _trajectory(self, traj_id: int) -> pa.Table:
        def ask(cursor: duckdb.DuckDBPyConnection, state: QueriedFiles) -> pa.Table:
            columns = self._trajectory_columns = (
                self._trajectory_columns or cursor.sql("FROM trajectory(id := 0)").columns
            )
            turns = self._connection.turns_of(state, [traj_id], columns, f"traj_id = {traj_id}")
            return fetch_turns(cursor, f"SELECT {', '.join(columns)} FROM ({turns}) ORDER BY turn", columns)

        self._connection.define_queries("trajectory")
        return self._connection.steady(ask)


def _setting(run: Mapping[str, Any], name: str, default: str | None) -> Any:
    """Return a credit setting of a run: a column of its row, else the value in its recipe, else the query's default."""
    if name in run:
        return run[name]
    recipe = orjson.loads(run.get("recipe_json") or "{}")
    setting = recipe.get("credit", {}).get(name) if isinstance(recipe, dict) else None
    return setting if setting is not None else (default or "").strip("'")


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "NULL"


def _dictionaries(answer: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = distinct_names([column[0] for column in answer.description or ()])
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
