"""The process that runs untrusted SQL: ``python -m warehouse.query.sandboxed``.

It reads one request from stdin and writes its answer to stdout, both as JSON (see `sandbox`).
"""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import duckdb

from userrl_core.errors import ConfigError, LogError, Refused, UserRLError
from userrl_core.json_files import portable
from warehouse import reference
from warehouse.query.connection import TRIES, UNPINNED_TRIES, Connection
from warehouse.query.run_names import with_run_ids
from warehouse.query.sandbox import GRACE_SECONDS, too_large, too_long
from warehouse.query.statements import check_functions, check_statement

ANSWER_BYTES = 64 * 10**6
OVERHEAD_BYTES = 32 * 2**20
"""Address space for the threads and buffers of any query."""
TABLES = "\n`from dictionary` lists tables and columns."
_SYSTEM = re.compile(r'\nDid you mean "(?:pg_|duckdb_|sqlite_|information_schema)[^"]*"\?')
"""A hint to one of the engine's own tables."""

SETTINGS_CLOSED = (
    "CREATE MACRO duckdb_settings() AS TABLE SELECT NULL::VARCHAR AS name, NULL::VARCHAR AS value, NULL::VARCHAR AS description, "
    "NULL::VARCHAR AS input_type, NULL::VARCHAR AS scope WHERE false",
    "CREATE MACRO current_setting(name) AS NULL",
)
"""The engine's views find these first, so that a setting stays hidden behind a name that the statement check misses.

A setting holds paths of this machine, which functions on text can turn so that no path is found in the answer.
"""
BACKGROUND = 10
"""Niceness of a query, so that training has priority."""


def main() -> None:
    """Answer one request and end."""
    started = time.monotonic()
    check_statement("SELECT 1")  # DuckDB's first parse takes 40 ms: here while the question is still on its way
    request: dict[str, Any] = json.load(sys.stdin)
    seconds, memory = request["seconds"], request["memory"]
    os.chdir(request["root"])  # paths in plans, views and messages are then those within the warehouse
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_SECONDS / 2)  # its default action ends the process
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _say(json.dumps(_ask(request, seconds - (time.monotonic() - started)), default=str))
    except duckdb.InterruptException:
        _refuse("Refused", "sql.too_long", too_long(seconds))
    except (duckdb.OutOfMemoryException, MemoryError):
        _refuse("Refused", "sql.too_large", too_large(memory))
    except duckdb.PermissionException as error:
        _refuse(
            "Refused",
            "sql.closed_function",
            f"Files, extensions and settings cannot be used here: {str(error).splitlines()[0]}",
        )
    except (Refused, LogError, ConfigError, duckdb.Error, ValueError) as error:
        if "bad_alloc" in str(error) or "llocation failure" in str(error):
            _refuse("Refused", "sql.too_large", too_large(memory))
        elif isinstance(error, UserRLError):
            _refuse(type(error).__name__, error.code, str(error))
        else:
            unknown = isinstance(error, (duckdb.CatalogException, duckdb.BinderException))
            _refuse("Refused", "sql.wrong", _SYSTEM.sub("", str(error)) + TABLES * unknown)


def _ask(request: dict[str, Any], seconds: float) -> dict[str, Any]:
    text, memory, max_rows = request["text"], request["memory"], request["limit"]
    check_statement(text)
    check_functions(text)
    settings = (
        "SET python_enable_replacements = false",
        "SET temp_directory = ''",
        "SET max_temp_directory_size = '0KiB'",
        f"SET memory_limit = '{memory // 1000}KB'",
        f"SET max_execution_time = {max(1, int(seconds * 1000))}",
        "SET autoload_known_extensions = false",
        *SETTINGS_CLOSED,
    )

    def limit() -> None:
        os.nice(BACKGROUND)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory + OVERHEAD_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the connection says the same
        text = with_run_ids(Path.cwd(), text)
    for attempt in range(TRIES):
        as_of = time.time()
        try:
            with (
                warnings.catch_warnings(record=True) as notes,
                Connection(Path()) as connection,
            ):
                warnings.simplefilter("always")
                connection.define_queries(text)
                columns, types, rows = connection.fetch_locked(
                    text, request["params"], max_rows + 1, settings, limit, pin=attempt >= UNPINNED_TRIES
                )
        except duckdb.IOException:
            # A listed file was sealed away meanwhile; a new list has it elsewhere.
            if attempt == TRIES - 1:
                raise
        else:
            json_rows = [[_shown(value) for value in row] for row in rows[:max_rows]]
            note_texts = [without_path(str(note.message)) for note in notes]
            return {
                "columns": columns,
                "types": types,
                "rows": json_rows,
                "truncated": len(rows) > max_rows,
                "as_of": as_of,
                "notes": note_texts,
            }
    raise Refused("warehouse.busy", "The warehouse is changing too quickly. Ask again in a moment.")


def without_path(text: str) -> str:
    """Replace this machine's folders in a text by the home (which contains the warehouse) or the user's folder."""
    for path, name in _places():
        text = text.replace(path, name)
    return text


def _shown(value: Any) -> Any:
    """Return a value for JSON: bytes as hexadecimal digits, a whole number beyond 64 bits as text. NaN stays, because
    Parquet and CSV have it. A value without a JSON form stays, and becomes its text later.
    """
    if isinstance(value, str):
        return without_path(value)
    if isinstance(value, (bytes, int)):
        return portable(value)
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {str(_shown(key)): _shown(item) for key, item in value.items()}
    return value


@functools.cache
def _places() -> list[tuple[str, str]]:
    import pwd

    user = Path(pwd.getpwuid(os.getuid()).pw_dir)
    folders = [(Path.cwd().parent, "$USERRL_HOME"), (Path(reference.__file__).parents[2], "$USERRL"), (user, "~")]
    return [(str(path), name) for path, name in folders if path != Path("/")]


def _refuse(error: str, code: str, message: str) -> None:
    _say(json.dumps({"error": error, "code": code, "message": without_path(message)}))


def _say(answer: str) -> None:
    if len(answer) > ANSWER_BYTES:
        _refuse(
            "Refused",
            "sql.too_large",
            f"The answer has {len(answer) / 1e6:.0f} MB. Ask for fewer rows or shorter text.",
        )
    else:
        sys.stdout.write(answer)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
