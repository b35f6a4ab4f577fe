"""A script that shows the warehouse to any DuckDB 2 client: the files as they are now, and every view and query."""

from __future__ import annotations

from pathlib import Path

from warehouse import schema, views
from warehouse.query.scan import file_list, quote
from warehouse.query.superseded import statements
from warehouse.reference import reference_statements


def attach_script(root: Path) -> str:
    """SQL to run in an empty in-memory database, for example ``duckdb -init attach.sql``.

    The list of files is of this moment: make it again after a compaction, or to see runs that started since.
    """
    from warehouse.query.connection import open_warehouse

    root = root.absolute()
    with open_warehouse(root) as warehouse:
        packs, sources, rewinds, runs = warehouse.described()
    made = ["CREATE SCHEMA store", "CREATE SCHEMA template", "CREATE SCHEMA reference", "USE template"]
    made += [text.rstrip().rstrip(";") for _, text in schema.scripts()]
    made.append("USE main")
    made += [f"ATTACH {quote(str(root / 'packs' / name))} AS {alias} (READ_ONLY)" for name, alias in packs.items()]
    made.append(f"CREATE VIEW store.runs AS {_runs(runs)}")
    made += [f"CREATE VIEW store.{table} AS {source}" for table, source in sources.items()]
    made += reference_statements()
    base, *topics = views.scripts()
    made.append(base[1].rstrip().rstrip(";"))
    made += statements(rewinds)
    made += [text.rstrip().rstrip(";") for _, text in topics]
    return ";\n".join(made) + ";\n"


def _runs(files: list[Path]) -> str:
    columns = ", ".join(schema.tables()["runs"].columns)
    if not files:
        return "FROM template.runs"
    kinds = schema.json_columns("runs")
    options = f"columns = {kinds}, format = 'newline_delimited', ignore_errors = true"
    return f"SELECT {columns} FROM read_json({file_list(files)}, {options})"
