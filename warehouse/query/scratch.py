"""One empty database in memory for a process. It holds results and answers questions about SQL; opening it takes 30 ms."""

from __future__ import annotations

import os
from functools import cache

import duckdb


def scratch() -> duckdb.DuckDBPyConnection:
    """Return a cursor of the process's database. A thread may use it while others use theirs."""
    return _database_of(os.getpid()).cursor()


@cache
def _database_of(process: int) -> duckdb.DuckDBPyConnection:
    # By process id, because a fork needs a database of its own: DuckDB's threads do not survive it.
    return duckdb.connect(":memory:")
