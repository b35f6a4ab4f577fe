"""A script that shows the warehouse to any DuckDB 2 client: the current files, and every view and query."""

from __future__ import annotations

from pathlib import Path

import duckdb

from warehouse import schema
from warehouse.query import dictionary
from warehouse.query.connection import Connection, QueriedFiles, alias, logged_tables, shipped_queries
from warehouse.query.scan import read_lines
from warehouse.schema import literal

DUCKDB = 2
"""The oldest major version of DuckDB that reads the packs."""
HEAD = f"""-- For DuckDB {DUCKDB} or newer: duckdb -init attach.sql
-- Run it within a minute if experiments are running, and create it again after `userrl warehouse compact`.
"""


def attach_script(root: Path) -> str:
    """Return SQL to run in an empty in-memory database of DuckDB 2, for example ``duckdb -init attach.sql``.

    The list of files is fixed now. Rows that running experiments still write are copied when the script runs, because their
    files are replaced within a minute. Create the script again after a compaction, or to see newer rows.
    """
    root = root.absolute()
    with Connection(root) as connection:
        connection.define_queries()

        def script(state: QueriedFiles) -> list[str]:
            packs = [
                f"ATTACH {literal(str(root / 'packs' / p))} AS {alias(p)} (READ_ONLY)" for p in state.snapshot.packs
            ]
            files = [root / "runs" / f"run={run_id}" / "run.json" for run_id in sorted(connection.run_numbers)]
            runs = "FROM template.runs"
            if files:
                runs = f"SELECT {', '.join(schema.types('runs'))} {read_lines('runs', files)}"
            tables = connection.stored(state.snapshot)
            copies = []
            for table, live in state.snapshot.live.items():
                lines = read_lines(table, live)
                tables = [text.replace(lines, f"FROM store.live_{table}") for text in tables]
                copies.append(f"CREATE TABLE store.live_{table} AS {lines}")
            stored = [*packs, f"CREATE VIEW store.runs AS {runs}", *copies, *tables]
            return [_needs_duckdb_2(), *logged_tables(stored, state.rewinds), *shipped_queries().values()]

        def told(cursor: duckdb.DuckDBPyConnection, state: QueriedFiles) -> list[str]:
            return [*script(state), *dictionary.statements(cursor)]

        statements = connection.steady(told, may_pin=False)  # its text names the files
    return HEAD + ";\n".join(statement.rstrip().rstrip(";") for statement in statements) + ";\n"


def _needs_duckdb_2() -> str:
    """Return SQL that refuses an older DuckDB with a sentence. It could not read the packs."""
    major = "CAST(split_part(ltrim(version(), 'v'), '.', 1) AS INTEGER)"
    sentence = f"'This script needs DuckDB {DUCKDB} or newer; this is ' || version() || '.'"
    return f"SET VARIABLE userrl_client = CASE WHEN {major} < {DUCKDB} THEN error({sentence}) END"
