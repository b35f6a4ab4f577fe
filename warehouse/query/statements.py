"""A check that SQL only reads: one SELECT, DESCRIBE, EXPLAIN (of a SELECT) or PIVOT, without a word that writes.

A statement is checked as DuckDB parses it, never by its text alone. A CTE's body may be a COPY, and strings, comments
and quoted names are not commands.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache

import duckdb

from userrl_core.errors import Refused
from warehouse.query.scratch import scratch

_GAP = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
_EXPLAIN = re.compile(rf"{_GAP}EXPLAIN\b{_GAP}(?:ANALYZE\b{_GAP})?(?:\([^()]*\){_GAP})?", re.IGNORECASE | re.DOTALL)
_FIRST_WORD = re.compile(rf"{_GAP}([A-Za-z]+)", re.DOTALL)
_WRITES = frozenset({"COPY", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "CREATE", "DROP", "ALTER", "ATTACH"})
_WRITING_NODE = re.compile(r'"type":"(\w+)_QUERY_NODE"')
_PIVOT_STARTS = {"PIVOT", "UNPIVOT", "WITH", "FROM", "SELECT"}
_HARMLESS = re.compile(
    "range|generate_series|unnest|repeat(_row)?|json_(each|tree)|histogram(_values)?|summary|version|show(_(tables|databases))?"
    "|table_info|functions|test_all_types|pg_timezone_names|icu_calendar_names|pragma_(table_info|version|show)"
    "|duckdb_(columns|tables|views|functions|types|keywords|schemas|databases|constraints|indexes|sequences)"
)
"""Table functions and pragmas that neither read files nor change anything."""


def check_statement(text: str) -> None:
    """Raise Refused unless the text is one statement that only reads; bad SQL raises duckdb.Error."""
    kinds = [str(s.type).rsplit(".", 1)[-1] for s in duckdb.extract_statements(text)]
    if len(kinds) != 1:
        raise Refused("sql.not_a_select", f"Give one statement at a time. This text has {len(kinds)}.")
    kind = kinds[0]
    if kind == "EXPLAIN":
        explained = _EXPLAIN.match(text)
        if explained is None:
            raise Refused("sql.not_a_select", "This EXPLAIN cannot be read. Write EXPLAIN SELECT ....")
        check_statement(text[explained.end() :])
    elif kind == "MULTI":
        # PIVOT is two statements to DuckDB: it first makes an enumeration of the new columns, in memory.
        first_word = _FIRST_WORD.match(text)
        if first_word is None or first_word[1].upper() not in _PIVOT_STARTS:
            raise Refused("sql.not_a_select", "Only SELECT, DESCRIBE, EXPLAIN and PIVOT are answered here.")
    elif kind != "SELECT":
        raise Refused(
            "sql.not_a_select",
            f"{kind} is refused: the warehouse is open for reading only. Use SELECT, DESCRIBE, EXPLAIN or PIVOT.",
        )
    check_words(text)
    if kind == "SELECT":
        check_nodes(text)


def check_words(text: str) -> None:
    """Raise Refused for a word that writes, in any position. A CTE's body may be a COPY or a DELETE, and DuckDB still
    parses the whole as a SELECT.
    """
    for token, _ in _words(text):
        if token.upper() in _WRITES:
            raise Refused(
                "sql.not_a_select",
                f"{token.upper()} is refused: the warehouse is open for reading only. Put a column or an alias "
                f'of that name in double quotes ("{token.lower()}").',
            )


def check_nodes(text: str) -> None:
    """Raise Refused when the parsed statement has a node that writes. This is the second lock."""
    with scratch() as con:
        parsed = str(con.execute("SELECT json_serialize_sql($1)", [text]).fetchall()[0][0])
    if node := _WRITING_NODE.search(parsed):
        raise Refused(
            "sql.not_a_select",
            f"{node[1]} is refused: the warehouse is open for reading only. Use SELECT, DESCRIBE, EXPLAIN or PIVOT.",
        )


def check_functions(text: str) -> None:
    """Raise Refused for a function that reads files, runs SQL from a string, or changes something, and for a view of the
    engine that calls one.
    """
    for token, called in _words(text):
        name = token.strip("\"'").lower()
        if name in _closed_views():
            raise Refused(
                "sql.closed_function",
                f"The view {name} is refused: files, settings and statements in strings cannot be used here.",
            )
        if called and name in _closed_functions():
            raise Refused(
                "sql.closed_function",
                f"The function {name} is refused: files, settings and statements in strings cannot be used here.",
            )


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """Yield keywords, names and strings of a text, with their quotes, and True if an opening parenthesis follows.

    A string may name a table: ``FROM 'turns'``.
    """
    data, tokens = text.encode(), duckdb.tokenize(text)
    ends = [*(start for start, _ in tokens[1:]), len(data)][: len(tokens)]
    outside_comments = [
        (kind, data[start:end].decode(errors="replace").strip())
        for (start, kind), end in zip(tokens, ends, strict=True)
        if kind != duckdb.token_type.comment
    ]
    for (kind, token), (_, following) in itertools.pairwise([*outside_comments, (None, "")]):
        if kind in (duckdb.token_type.keyword, duckdb.token_type.identifier, duckdb.token_type.string_const):
            yield token, following.startswith("(")


@cache
def _closed_functions() -> frozenset[str]:
    with scratch() as con:
        rows = con.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'pragma')"
        ).fetchall()
    # Settings hold paths of this machine, which functions on text can turn so that no path is found in the answer.
    names = {name for (name,) in rows} | {"write_log", "nextval", "setval", "current_setting"}
    return frozenset(name for name in names if not _HARMLESS.fullmatch(name))


@cache
def _closed_views() -> frozenset[str]:
    """Return the engine's own views that call a closed function, such as pg_settings."""
    with scratch() as con:
        rows = con.execute("SELECT view_name, sql FROM duckdb_views() WHERE internal").fetchall()
    return frozenset(
        name
        for name, sql in rows
        if not _closed_functions().isdisjoint(token for token, called in _words(sql) if called)
    )
