"""Untrusted SQL: one SELECT over a fixed list of files, nothing else.

Two locks, each enough for most attacks and both needed for some. `statements` lets through only what reads, without
functions that read files or run SQL from strings; DuckDB itself is locked afterwards: no file but the listed ones, no
extension, no setting, no Python variable, a time and a memory limit, no spilling. The list alone would not do, since a
listed file could be overwritten by COPY; the statement check alone would not do, since functions read files.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from userrl_core.errors import Refused
from warehouse.query.connection import TRIES, Connection
from warehouse.query.statements import check_functions, check_statement

SECONDS = 30.0
MEMORY = "2GB"
ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of one query. truncated: there were more than the limit. as_of: Unix seconds of the list of files."""

    table: pa.Table
    truncated: bool
    as_of: float


def ask(
    root: Path, text: str, *, limit: int = ROWS, seconds: float = SECONDS, memory: str = MEMORY, **params: Any
) -> Answer:
    """Answer one untrusted query. Raises Refused with one sentence, or duckdb.Error for SQL that is merely wrong."""
    check_statement(text)
    check_functions(text)
    settings = (
        "SET python_enable_replacements = false",
        "SET temp_directory = ''",
        "SET max_temp_directory_size = '0KiB'",
        f"SET memory_limit = '{memory}'",
        f"SET max_execution_time = {int(seconds * 1000)}",
        "SET autoload_known_extensions = false",
    )
    for tried in range(TRIES):
        as_of = time.time()
        try:
            with Connection(root) as connection:
                table = connection.fetch_locked(text, params, limit + 1, settings)
        except duckdb.IOException:
            # A listed file was sealed away meanwhile; a new list has it elsewhere.
            if tried == TRIES - 1:
                raise
        except duckdb.InterruptException:
            raise Refused(f"The query took longer than {seconds:g} s; narrow it, for example to one run.") from None
        except duckdb.OutOfMemoryException:
            raise Refused(
                f"The query needs more than {memory} of memory; narrow it, or aggregate before joining."
            ) from None
        except duckdb.PermissionException as error:
            raise Refused(f"Files, extensions and settings are closed here: {str(error).splitlines()[0]}") from None
        else:
            return Answer(table.slice(0, limit), table.num_rows > limit, as_of)
    raise Refused("The warehouse is changing too quickly; ask again in a moment.")
