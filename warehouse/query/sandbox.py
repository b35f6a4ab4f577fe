"""Untrusted SQL: one SELECT over a fixed list of files, nothing else.

Two locks, each enough for most attacks and both needed for some. The statement check lets through SELECT, DESCRIBE,
EXPLAIN (of a SELECT) and PIVOT alone, without a word that writes (a CTE may hold a COPY) and without functions that read
files or run SQL from strings; DuckDB itself is closed afterwards: no file but the listed ones, no extension, no
setting, no Python variable, a time and a memory limit, no spilling. The list alone would not do, since a listed file
could be overwritten by COPY; the statement check alone would not do, since functions read files.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from userrl_core.errors import Refused

if TYPE_CHECKING:
    import pyarrow as pa

    from warehouse.query.connection import Warehouse

SECONDS = 30.0
MEMORY = "2GB"
ROWS = 10_000

_GAP = r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*"
_EXPLAIN = re.compile(rf"{_GAP}EXPLAIN\b{_GAP}(?:ANALYZE\b{_GAP})?(?:\([^()]*\){_GAP})?", re.IGNORECASE | re.DOTALL)
_FIRST_WORD = re.compile(rf"{_GAP}([A-Za-z]+)", re.DOTALL)
_WRITES = frozenset({"COPY", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "CREATE", "DROP", "ALTER", "ATTACH"})
_HARMLESS = frozenset(
    [
        "range",
        "generate_series",
        "unnest",
        "repeat",
        "repeat_row",
        "json_each",
        "json_tree",
        "histogram",
        "histogram_values",
        "summary",
        "version",
        "show",
        "show_tables",
        "show_databases",
        "table_info",
        "functions",
        "test_all_types",
        "pg_timezone_names",
        "icu_calendar_names",
        "pragma_table_info",
        "pragma_version",
        "pragma_show",
        "duckdb_columns",
        "duckdb_tables",
        "duckdb_views",
        "duckdb_functions",
        "duckdb_types",
        "duckdb_keywords",
        "duckdb_schemas",
        "duckdb_databases",
        "duckdb_settings",
    ]
)
_WRITING_NODE = re.compile(r'"type":"(\w+)_QUERY_NODE"')
_PIVOT_STARTS = {"PIVOT", "UNPIVOT", "WITH", "FROM", "SELECT"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of one question. truncated: there were more than the limit. as_of: Unix seconds of the list of files."""

    table: pa.Table
    truncated: bool
    as_of: float


def check_statement(text: str) -> None:
    """Raise Refused unless the text is one statement that only reads; bad SQL raises duckdb.Error."""
    kinds = [str(s.type).rsplit(".", 1)[-1] for s in duckdb.extract_statements(text)]
    if len(kinds) != 1:
        raise Refused(f"One statement at a time, please; this text holds {len(kinds)}.")
    kind = kinds[0]
    if kind == "EXPLAIN":
        explained = _EXPLAIN.match(text)
        if explained is None:
            raise Refused("This EXPLAIN cannot be read; write EXPLAIN SELECT ....")
        check_statement(text[explained.end() :])
    elif kind == "MULTI":
        # PIVOT is two statements to DuckDB: it first makes an enumeration of the new columns, in memory.
        word = _FIRST_WORD.match(text)
        if word is None or word[1].upper() not in _PIVOT_STARTS:
            raise Refused("Only SELECT, DESCRIBE, EXPLAIN and PIVOT are answered here.")
    elif kind != "SELECT":
        raise Refused(
            f"{kind} is refused: the warehouse is open for reading only; use SELECT, DESCRIBE, EXPLAIN or PIVOT."
        )
    _check_words(text)
    if kind == "SELECT":
        _check_nodes(text)


def _check_words(text: str) -> None:
    """Raise Refused for a word that writes, wherever it stands: a CTE's body may be a COPY or a DELETE, and the whole is
    then still a SELECT to DuckDB. Strings, comments and quoted names are no words."""
    for word, _ in _words(text):
        if word.upper() in _WRITES:
            raise Refused(
                f"{word.upper()} is refused: the warehouse is open for reading only; a column or an alias of that name goes "
                f'in double quotes ("{word.lower()}").'
            )


def _check_functions(text: str) -> None:
    """Raise Refused for a function that reads files, runs SQL from a string, or changes something."""
    for word, called in _words(text):
        name = word.strip('"').lower()
        if called and name in _closed_functions():
            raise Refused(f"The function {name} is refused: files, settings and statements in strings are closed here.")


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """Keywords and names of a text, quoted names with their quotes, and whether an opening parenthesis follows."""
    data, every = text.encode(), duckdb.tokenize(text)
    ends = [*(start for start, _ in every[1:]), len(data)][: len(every)]
    spoken = [
        (kind, data[start:end].decode(errors="replace").strip())
        for (start, kind), end in zip(every, ends, strict=True)
        if kind != duckdb.token_type.comment
    ]
    for (kind, word), (_, following) in itertools.pairwise([*spoken, (None, "")]):
        if kind in (duckdb.token_type.keyword, duckdb.token_type.identifier):
            yield word, following.startswith("(")


@cache
def _closed_functions() -> frozenset[str]:
    """Every table function and pragma that DuckDB has, but the harmless ones."""
    with duckdb.connect(":memory:") as con:
        rows = con.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'pragma')"
        ).fetchall()
    return frozenset({name for (name,) in rows} | {"write_log", "nextval", "setval"}) - _HARMLESS


def _check_nodes(text: str) -> None:
    """The second lock: the parsed statement holds no node that writes."""
    with duckdb.connect(":memory:") as con:
        parsed = str(con.execute("SELECT json_serialize_sql($1)", [text]).fetchall()[0][0])
    found = _WRITING_NODE.search(parsed)
    if found is not None:
        raise Refused(f"{found[1]} is refused: the warehouse is open for reading only.")


def ask(
    path: Path | str | None,
    text: str,
    *,
    limit: int = ROWS,
    seconds: float = SECONDS,
    memory: str = MEMORY,
    **params: Any,
) -> Answer:
    """Answer one untrusted question. Raises Refused with one sentence, or duckdb.Error for SQL that is merely wrong."""
    from warehouse.query.connection import TRIES, open_warehouse

    check_statement(text)
    _check_functions(text)
    for attempt in range(TRIES):
        with open_warehouse(path) as warehouse:
            as_of = time.time()
            try:
                table = _closed(warehouse, text, params, limit, seconds, memory)
            except duckdb.IOException:
                # A listed file was sealed away meanwhile; a new list has it elsewhere.
                if attempt == TRIES - 1:
                    raise
                continue
            return Answer(table.slice(0, limit), table.num_rows > limit, as_of)
    raise Refused("The warehouse is changing too quickly; ask again in a moment.")


def _closed(
    warehouse: Warehouse, text: str, params: dict[str, Any], limit: int, seconds: float, memory: str
) -> pa.Table:
    try:
        return warehouse.locked_answer(text, params, limit + 1, list(_settings(seconds, memory)))
    except duckdb.InterruptException:
        raise Refused(f"The question took longer than {seconds:g} s; narrow it, for example to one run.") from None
    except duckdb.OutOfMemoryException:
        raise Refused(
            f"The question needs more than {memory} of memory; narrow it, or aggregate before joining."
        ) from None
    except duckdb.PermissionException as error:
        raise Refused(f"Files, extensions and settings are closed here: {str(error).splitlines()[0]}") from None


def _settings(seconds: float, memory: str) -> Iterator[str]:
    yield "SET python_enable_replacements = false"
    yield "SET temp_directory = ''"
    yield "SET max_temp_directory_size = '0KiB'"
    yield f"SET memory_limit = '{memory}'"
    yield f"SET max_execution_time = {int(seconds * 1000)}"
    yield "SET autoload_known_extensions = false"
