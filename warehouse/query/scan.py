"""SQL for one table's rows wherever they lie: in packs, sealed segments and live files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from warehouse import schema
from warehouse.files.layout import Snapshot
from warehouse.write.wal import LIVE_LINE_BYTES


def rows(
    table: str,
    seen: Snapshot,
    packs: Mapping[str, Sequence[str]],
    *,
    only: Collection[str] | None = None,
    where: str = "",
    scattered: bool = False,
) -> str:
    """The table's rows with the newest schema's columns; what older files lack is null.

    packs: the columns that each attached pack has of this table, by the pack's alias; empty where it lacks the table or
    holds no row of it. only: the columns wanted, all by default. where: a condition on them, put to every part by itself.
    scattered: a few rows here and there are wanted; a pack then finds them first, and reads no other row's text.
    A torn last line of a live file becomes a null row in DuckDB, hence the test of a key that is never null.
    """
    kinds = [c for c in schema.tables()[table].columns.values() if only is None or c.name in only]
    columns = ", ".join(c.name for c in kinds)
    key = "traj_id" if "traj_id" in schema.tables()[table].columns else "run_id"
    where = f" WHERE {where}" if where else ""
    made = []
    for alias, has in packs.items():
        if has:
            listed = ", ".join(c.name if c.name in has else f"NULL::{c.type} AS {c.name}" for c in kinds)
            some = f" WHERE rowid IN (SELECT rowid FROM {alias}.{table}{where})" if scattered else where
            made.append(f"SELECT {listed} FROM {alias}.{table}{some}")
    files = []
    if sealed := seen.sealed.get(table):
        files.append(f"FROM read_parquet({file_list(sealed)}, union_by_name = true, hive_partitioning = false)")
    if live := seen.live.get(table):
        files.append(
            f"FROM read_json({file_list(live)}, columns = {schema.json_columns(table)}, format = 'newline_delimited', "
            f"ignore_errors = true, maximum_object_size = {LIVE_LINE_BYTES}) WHERE {key} IS NOT NULL"
        )
    if files:
        by_name = "".join(f" UNION ALL BY NAME ({part})" for part in files)
        made.append(f"SELECT {columns} FROM (FROM template.{table}{by_name}){where}")
    if not made or not where:
        # It has no rows; it is there for the types, which one row's question can do without.
        made.insert(0, f"SELECT {columns} FROM template.{table}")
    return " UNION ALL ".join(made)


def has_rows(table: str, seen: Snapshot) -> bool:
    """Whether there is anything of the table: packs say how many rows of it they hold, a file always holds some."""
    packed = any(entry["rows"].get(table, 1) for entry in seen.packs.values())
    return packed or bool(seen.sealed.get(table) or seen.live.get(table))


def credited(seen: Snapshot, turns: str = "FROM store.turns", credits: str = "FROM store.credits") -> str:
    """Turns with their credit, from the SQL of both; when no credits lie apart, packed turns have theirs already.

    To plan a join with nothing would cost a question for one trajectory a quarter of its time.
    """
    if not has_rows("credits", seen):
        return turns
    return (
        "SELECT t.* REPLACE (coalesce(t.shaped, c.shaped) AS shaped, coalesce(t.advantage, c.advantage) AS advantage) "
        f"FROM ({turns}) t LEFT JOIN ({credits}) c ON c.traj_id = t.traj_id AND c.turn = t.turn"
    )


def trials(root: Path) -> str:
    """The last record of each trial."""
    files = sorted((root / "trials").glob("*.jsonl"))
    if not files:
        return "FROM template.trials"
    return (
        f"FROM read_json({file_list(files)}, columns = {schema.json_columns('trials')}, format = 'newline_delimited', "
        f"ignore_errors = true, maximum_object_size = {LIVE_LINE_BYTES}) WHERE study IS NOT NULL "
        "QUALIFY row_number() OVER (PARTITION BY study, number ORDER BY logged_at DESC) = 1"
    )


def quote(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def file_list(files: Sequence[Path]) -> str:
    """Files as an SQL list of literals."""
    return "[" + ", ".join(quote(str(file)) for file in sorted(files)) + "]"
