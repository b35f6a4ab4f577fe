"""A script that shows the warehouse to any DuckDB 2 client: the current files, and every view and query."""

from __future__ import annotations

from pathlib import Path

import duckdb

from warehouse import schema
from warehouse.query import dictionary
from warehouse.query.connection import Connection, QueriedFiles, alias, logged_tables, shipped_queries
from warehouse.query.scan import read_lines
from warehouse.schema import literal


def attach_script(root: Path) -> str:
    """Return SQL to run in an empty in-memory database, for example ``duckdb -init attach.sql``.

    The list of files is fixed now. Create the script again after a compaction, or to see runs that started since.
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
            stored = [*packs, f"CREATE VIEW store.runs AS {runs}", *connection.stored(state.snapshot)]
            return [*logged_tables(stored, state.rewinds), *shipped_queries().values()]

        def told(cursor: duckdb.DuckDBPyConnection, state: QueriedFiles) -> list[str]:
            return [*script(state), *dictionary.statements(cursor)]

        statements = connection.steady(told, may_pin=False)  # its text names the files
    return ";\n".join(statement.rstrip().rstrip(";") for statement in statements) + ";\n"
