"""Some turns by their ids: asked of the few files that can hold them, since planning over all takes longer than reading."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from warehouse import schema
from warehouse.files.layout import Snapshot
from warehouse.query import scan as sources
from warehouse.query.superseded import Rewind, standing

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Source(Protocol):
    """How a warehouse asks for a table's rows in the files of a list."""

    def __call__(
        self, table: str, seen: Snapshot, only: Collection[str] | None, where: str, *, scattered: bool = False
    ) -> str:
        """SQL, see `sources.rows`."""


def standing_turns(
    source: Source,
    seen: Snapshot,
    runs: Mapping[str, int],
    rewinds: Sequence[Rewind],
    traj_ids: Collection[int],
    only: Collection[str],
    where: str,
    *,
    scattered: bool,
) -> str:
    """SQL that gives what the view `turns` would of these trajectories.

    runs: each run's number, by its folder. only: the columns wanted; those that say where a turn belongs come with them.
    where: a condition on traj_id and turn.
    """
    named: dict[int, list[str]] = {}
    for folder, number in runs.items():
        named.setdefault(number, []).append(folder.removeprefix("run="))
    near = seen
    # A run whose row is lost has no number; its turns may be anywhere.
    if all(i >> 40 in named for i in traj_ids):
        near = seen.of_turns({(run, i >> 24 & 0xFFFF) for i in traj_ids for run in named[i >> 40]})
    needed = {*only, "traj_id", "turn", "run_id", "incarnation", "stage", "step", "phase"}
    if not needed & {"shaped", "advantage"}:
        return standing(source("turns", near, needed, where, scattered=scattered), rewinds)
    turns = source("turns", near, needed | {"shaped", "advantage"}, where, scattered=scattered)
    return standing(sources.credited(near, turns, source("credits", near, None, where)), rewinds)


def rows_of(cursor: duckdb.DuckDBPyConnection, text: str, columns: Sequence[str]) -> pa.Table:
    """The answer to a query of columns of `turns`; fetched as rows, since a relation is planned twice."""
    import pyarrow as pa

    fields = [schema.arrow_schema("turns").field(name) for name in columns]
    found = cursor.execute(text).fetchall()
    values = zip(*found, strict=True) if found else [()] * len(fields)
    arrays = [pa.array(column, field.type) for column, field in zip(values, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
