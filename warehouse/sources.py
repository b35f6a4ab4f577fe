"""SQL for one table's rows wherever they lie: in packs, sealed segments and live files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from warehouse import schema
from warehouse.journal import LIVE_LINE_BYTES
from warehouse.layout import Snapshot


def rows(table: str, seen: Snapshot, packs: Mapping[str, Sequence[str]]) -> str:
    """The table's rows with the newest schema's columns; what older files lack is null.

    packs: the columns that each attached pack has of this table, by the pack's alias; empty where it lacks the table.
    A torn last line of a live file becomes a null row in DuckDB, hence the test of a key that is never null.
    """
    kinds = schema.tables()[table].columns.values()
    columns = ", ".join(c.name for c in kinds)
    key = "traj_id" if "traj_id" in schema.tables()[table].columns else "run_id"
    made = [f"SELECT {columns} FROM template.{table}"]
    for alias, has in packs.items():
        if has:
            listed = ", ".join(c.name if c.name in has else f"NULL::{c.type} AS {c.name}" for c in kinds)
            made.append(f"SELECT {listed} FROM {alias}.{table}")
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
        made.append(f"SELECT {columns} FROM (FROM template.{table}{by_name})")
    return " UNION ALL ".join(made)


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
