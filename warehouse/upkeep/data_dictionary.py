"""The data dictionary, generated: ``python -m warehouse.upkeep.data_dictionary > docs/warehouse.md``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warehouse import schema, views


def page() -> str:
    """Return the page as Markdown: every table with its columns, every named query with its parameters."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield Path(__file__).with_suffix(".md").read_text().rstrip()
    yield ""
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
