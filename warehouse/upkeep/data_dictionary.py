"""Write docs/reference/schema.md, the page of all tables, columns and queries.

``python -m warehouse.upkeep.data_dictionary > docs/reference/schema.md``
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from warehouse import open_warehouse, schema, views

HEAD = """# Schema: tables and queries

This page is generated from the schema and the views (`python -m warehouse.upkeep.data_dictionary > docs/reference/schema.md`).
[warehouse.md](../warehouse.md) explains how the warehouse works. Every query is a table function:
`userrl sql "from learning_curve(run := 'latest')"`. `userrl sql "from dictionary"` shows the same in a terminal.
"""


def page() -> str:
    """Return the page as Markdown: every table with its columns, every named query with its parameters."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    yield f"## Tables (schema {schema.version()})"
    for table in schema.tables().values():
        yield f"\n### {table.name}\n\n{table.doc}\n\n| column | type | meaning |\n| --- | --- | --- |"
        for column in table.columns.values():
            since = f" (since schema {column.since})" if column.since > 1 else ""
            yield f"| {column.name} | {column.type} | {column.doc.replace('|', chr(92) + '|')}{since} |"
    yield "\n## Queries\n\n| name | parameters | answers |\n| --- | --- | --- |"
    for query in views.queries().values():
        params = ", ".join(name if default is None else f"{name} = {default}" for name, default in query.params.items())
        yield f"| {query.name} | {params.replace('|', chr(92) + '|')} | {query.doc} |"
    yield '\n### Columns of the queries\n\n`userrl sql "describe from NAME()"` gives their types.\n'
    yield "| query | columns |\n| --- | --- |"
    for name, columns in query_columns().items():
        yield f"| {name} | {', '.join(columns)} |"


def query_columns() -> dict[str, list[str]]:
    """Return the columns of every named query, in their order."""
    columns = {}
    with TemporaryDirectory() as empty, open_warehouse(Path(empty)) as warehouse:
        for query in views.queries().values():
            needed = ", ".join(f"{name} := NULL" for name, default in query.params.items() if default is None)
            described = warehouse.rows(f"DESCRIBE FROM {query.name}({needed})")
            columns[query.name] = [row["column_name"] for row in described]
    return columns


if __name__ == "__main__":
    print(page(), end="")
