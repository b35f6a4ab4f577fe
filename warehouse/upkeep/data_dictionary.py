"""Write the page of all tables, columns and queries: ``python -m warehouse.upkeep.data_dictionary > docs/schema.md``."""

from __future__ import annotations

from collections.abc import Iterator

from warehouse import schema, views

HEAD = """# Schema: tables and queries

This page is generated from the schema and the views (`python -m warehouse.upkeep.data_dictionary > docs/schema.md`).
[warehouse.md](warehouse.md) explains how the warehouse works. Every query is a table function:
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


if __name__ == "__main__":
    print(page(), end="")
