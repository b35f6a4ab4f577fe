"""An empty database of Prefect 3.8.8, so that a server of a test does not spend seven seconds of CPU time on migrations.

A newer Prefect migrates it further. `tests/flows/server/test_locked_server.py` starts a server in a folder without any database.
To write ``tests/data/prefect.sql.gz`` anew, call `store` with the database of a server that was started once::

    python -c 'from tests.migrated import store; store("prefect.db")'
"""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

STATEMENTS = Path(__file__).parent / "data" / "prefect.sql.gz"


def migrate(prefect_home: Path) -> None:
    """Create the database of a server whose PREFECT_HOME is this folder, unless there is one."""
    file = prefect_home / "prefect.db"
    if file.exists():
        return
    prefect_home.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as database:
        database.executescript(gzip.decompress(STATEMENTS.read_bytes()).decode())


def store(database: str | Path) -> None:
    """Write the statements that create this database."""
    with closing(sqlite3.connect(database)) as connection:
        text = "\n".join(connection.iterdump())
    STATEMENTS.write_bytes(gzip.compress(text.encode(), mtime=0))
