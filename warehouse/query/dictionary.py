"""The data dictionary inside the database: ``COMMENT ON`` every name, and the view `dictionary`.

Table columns are described in the schema, and queries in the comment above each. The results of queries and the
papers' tables are described in ``views/descriptions.csv``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import duckdb

from warehouse import schema, views
from warehouse.schema import literal

DICTIONARY = "dictionary"


_CONCERNS = re.compile(
    r"\b(show|describe|summarize|pragma\w*|duckdb_\w+|information_schema|pg_\w+|sqlite_\w+|dictionary)\b", re.IGNORECASE
)


def concerns(text: str) -> bool:
    """Return True if a text may ask what exists in the database."""
    return bool(_CONCERNS.search(text))


def statements(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    """Return SQL that describes the contents of a connection with the shipped queries."""
    columns = [
        f"COMMENT ON COLUMN {DICTIONARY}.{name} IS {literal(_descriptions()[name])}"
        for name in ("object", "name", "column_name", "type", "description", "arguments", "example")
    ]
    view = [
        _dictionary(_called(cursor)),
        f"COMMENT ON VIEW {DICTIONARY} IS {literal(object_doc(DICTIONARY))}",
        *columns,
    ]
    return [*_comments(cursor), *_on_macros(), *view]


def _comments(cursor: duckdb.DuckDBPyConnection) -> list[str]:
    columns: dict[str, list[str]] = {}
    for schema_name, name, column in cursor.execute(
        "SELECT schema_name, table_name, column_name FROM duckdb_columns() WHERE database_name = current_database() "
        f"AND schema_name IN ('main', 'reference') AND NOT internal AND table_name <> '{DICTIONARY}' ORDER BY ALL"
    ).fetchall():
        columns.setdefault(name if schema_name == "main" else f"{schema_name}.{name}", []).append(column)
    comments = []
    for name, names in columns.items():
        kind = "TABLE" if name.startswith("reference.") else "VIEW"
        comments.append(f"COMMENT ON {kind} {name} IS {literal(object_doc(name))}")
        comments += [f'COMMENT ON COLUMN {name}."{column}" IS {literal(column_doc(name, column))}' for column in names]
    return comments


def _called(cursor: duckdb.DuckDBPyConnection) -> list[tuple[str, str, str, str]]:
    """Return name, column, type and description of the results of queries that are not views."""
    view_names = {
        row[0] for row in cursor.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    }
    rows = []
    for query in views.queries().values():
        if query.name in view_names:
            continue
        call_arguments = ", ".join(f"{key} := NULL" for key, default in query.params.items() if default is None)
        answered = cursor.execute(f"DESCRIBE FROM {query.name}({call_arguments})").fetchall()
        rows += [(query.name, column, kind, column_doc(query.name, column)) for column, kind, *_ in answered]
    return rows


def object_doc(name: str) -> str:
    """Return the description of a table, a view or a query, in one or two sentences."""
    if name in schema.tables():
        return schema.tables()[name].doc
    query = views.queries().get(name)
    return query.doc if query is not None else _descriptions()[name]


def column_doc(name: str, column: str) -> str:
    """Return the description of a column of a table, a view or a query; empty without one."""
    table = schema.tables().get(name.removesuffix("_all") if name != "stage_status" else "stages")
    if table is not None:
        return table.columns[column].doc
    return _descriptions().get(column) or _of_tables().get(column, "")


def example(name: str) -> str:
    """Return executable SQL that queries this table or query."""
    query = views.queries().get(name)
    if query is None:
        return f"FROM {name} LIMIT 5"
    if name == "trajectory":
        return "FROM trajectory(id := (SELECT max(traj_id) FROM trajectories))"
    return f"FROM {name}(run := 'latest')" if "run" in query.params else f"FROM {name}()"


def arguments(query: views.Query) -> str:
    """Return the parameters with their defaults, as in a call."""
    return ", ".join(key if default is None else f"{key} := {default}" for key, default in query.params.items())


@cache
def _descriptions() -> dict[str, str]:
    with (Path(views.__file__).parent / "descriptions.csv").open(newline="") as file:
        return {row["name"]: row["description"] for row in csv.DictReader(file)}


@cache
def _of_tables() -> dict[str, str]:
    """Return descriptions by column name. A trajectory's column wins over a turn's, because queries count trajectories."""
    tables = schema.tables()
    ordered = [tables[name] for name in tables if name not in ("trajectories", "turns")]
    docs: dict[str, str] = {}
    for table in (tables["trajectories"], tables["turns"], *ordered):
        for column in table.columns.values():
            docs.setdefault(column.name, column.doc)
    return docs


def _on_macros() -> Iterator[str]:
    for query in views.queries().values():
        yield f"COMMENT ON MACRO TABLE {query.name} IS {literal(query.doc)}"


def _dictionary(called: Sequence[tuple[str, str, str, str]]) -> str:
    rows: list[tuple[str | None, ...]] = []
    names = [*schema.tables(), *(name for name in _descriptions() if name == "stage_status" or name.endswith("_all"))]
    for name in [*names, DICTIONARY]:
        rows.append(("table", name, object_doc(name), None, example(name)))
    for query in views.queries().values():
        rows.append(("query", query.name, query.doc, arguments(query), example(query.name)))
    for name in (name for name in _descriptions() if name.startswith("reference.")):
        rows.append(("published", name, object_doc(name), None, example(name)))
    values, columns = (", ".join(f"({', '.join(map(literal, row))})" for row in some) for some in (rows, called))
    return (
        f"CREATE OR REPLACE VIEW {DICTIONARY} AS "
        f"WITH objects AS (FROM (VALUES {values}) o(object, name, description, arguments, example)) "
        "SELECT object, name, NULL::VARCHAR AS column_name, NULL::VARCHAR AS type, description, arguments, example FROM objects "
        "UNION ALL "
        "SELECT o.object, o.name, c.column_name, c.data_type, c.comment, NULL, NULL FROM objects o JOIN duckdb_columns() c "
        "ON o.name = CASE c.schema_name WHEN 'main' THEN c.table_name ELSE c.schema_name || '.' || c.table_name END "
        "WHERE c.database_name = current_database() AND c.schema_name IN ('main', 'reference') "
        "UNION ALL "
        "SELECT 'query', name, column_name, type, description, NULL, NULL "
        f"FROM (VALUES {columns}) q(name, column_name, type, description)"
    )
