"""SQL for one table's rows in packs, sealed segments and live files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from warehouse import schema
from warehouse.files.layout import LIVE_LINE_BYTES, Snapshot
from warehouse.schema import file_list


def rows(
    table: str,
    snapshot: Snapshot,
    packs: Mapping[str, Sequence[str]],
    *,
    only: Collection[str] | None = None,
    where: str = "",
    scattered: bool = False,
) -> str:
    """Return SQL for the table's rows with the newest schema's columns; columns missing in older files are null.

    packs: the columns that each attached pack has of this table, by the pack's alias; empty where it lacks the table
    or its rows. only: the columns to read, all by default. where: a condition on them, applied to each part.
    scattered: for few rows far from each other; a pack then finds them first, and reads no other row's text. DuckDB
    turns an incomplete last line of a live file into a null row, so a key that is never null is tested.
    """
    types = {name: kind for name, kind in schema.types(table).items() if only is None or name in only}
    columns = ", ".join(types)
    key = "traj_id" if "traj_id" in schema.types(table) else "run_id"
    where = f" WHERE {where}" if where else ""
    parts = []
    for alias, present in packs.items():
        if present:
            pack_columns = ", ".join(
                name if name in present else f"NULL::{kind} AS {name}" for name, kind in types.items()
            )
            matching = f" WHERE rowid IN (SELECT rowid FROM {alias}.{table}{where})" if scattered else where
            parts.append(f"SELECT {pack_columns} FROM {alias}.{table}{matching}")
    files = []
    if sealed := snapshot.sealed.get(table):
        files.append(f"FROM read_parquet({file_list(sealed)}, union_by_name = true, hive_partitioning = false)")
    if live := snapshot.live.get(table):
        files.append(f"{read_lines(table, live)} WHERE {key} IS NOT NULL")
    if files:
        by_name = "".join(f" UNION ALL BY NAME ({part})" for part in files)
        parts.append(f"SELECT {columns} FROM (FROM template.{table}{by_name}){where}")
    if not parts or not where:
        # It has no rows; it is there for the types, which a lookup of one row can do without.
        parts.insert(0, f"SELECT {columns} FROM template.{table}")
    return " UNION ALL ".join(parts)


def read_lines(table: str, files: Sequence[Path]) -> str:
    """Return SQL for the rows of JSON lines. An unreadable line is left out or becomes a row of nulls."""
    return (
        f"FROM read_json({file_list(files)}, columns = {schema.json_columns(table)}, format = 'newline_delimited', "
        f"ignore_errors = true, maximum_object_size = {LIVE_LINE_BYTES})"
    )


def has_rows(table: str, snapshot: Snapshot) -> bool:
    """Return True if the table may have rows: packs state their number of rows, and a file always has some."""
    packed = any(entry["rows"].get(table, 1) for entry in snapshot.packs.values())
    return packed or bool(snapshot.sealed.get(table) or snapshot.live.get(table))


def credited(snapshot: Snapshot, turns: str = "FROM store.turns", credits: str = "FROM store.credits") -> str:
    """Return SQL for turns with their credit, from the SQL of both. Without separate credits, packed turns have
    theirs already.

    Planning a join with an empty table would take a quarter of the time of looking up one trajectory.
    """
    if not has_rows("credits", snapshot):
        return turns
    return (
        "SELECT t.* REPLACE (coalesce(t.shaped, c.shaped) AS shaped, coalesce(t.advantage, c.advantage) AS advantage) "
        f"FROM ({turns}) t LEFT JOIN ({credits}) c ON c.traj_id = t.traj_id AND c.turn = t.turn"
    )


def trials(files: Sequence[Path]) -> str:
    """Return SQL for the last record of each trial."""
    if not files:
        return "FROM template.trials"
    return (
        f"{read_lines('trials', files)} WHERE study IS NOT NULL "
        "QUALIFY row_number() OVER (PARTITION BY study, number ORDER BY logged_at DESC) = 1"
    )
