"""A study's database: its stored address, and connections that wait while it is away.

The stored address has no password. The password stays in memory, in a flow's parameter or in the environment.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from userrl_core.errors import ConfigError

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

VARIABLE = "USERRL_SWEEP_STORAGE"
"""Environment variable with the whole address, so that it need not be a flow's parameter."""

HIDDEN = "***"
OUTAGE_SECONDS = 1800.0
"""Seconds to wait for a database that stopped before the sweep gives up. Its trials continue."""
_PASSWORD = re.compile(r"(?i)pass|pwd|secret|token|key$")


def hidden(storage: str) -> str:
    """Return the address with ``***`` for its passwords, also those among its parameters."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(storage)
    except (ArgumentError, ValueError):
        return HIDDEN
    query = {name: HIDDEN if _PASSWORD.search(name) else value for name, value in url.query.items()}
    return url.set(query=query).render_as_string(hide_password=True).replace("%2A%2A%2A", HIDDEN)


def storage_of(address: str | None, record: Mapping[str, Any] | None, name: str) -> str | None:
    """Return the address to open: the given one, else the recorded one, else (for a new sweep) the environment's.

    record: the sweep's space.json, None for a new one. Returns None for the journal file. Raises ConfigError if the
    recorded address lacks its password and nobody gives it now.
    """
    if address is not None:
        return address
    from_environment = os.environ.get(VARIABLE) or None
    if record is None:
        return from_environment
    stored: str | None = record.get("storage")
    if stored is None or HIDDEN not in stored:
        return stored
    if from_environment is not None and hidden(from_environment) == stored:
        return from_environment
    raise ConfigError(
        "sweep.storage",
        f"Sweep '{name}' keeps its study at {stored}, and the password is stored nowhere. Give storage again, "
        f"or put the whole address into the environment variable {VARIABLE}.",
    )


def patient_storage(address: str) -> RDBStorage:
    """Open a database that may stop later: a new connection then waits for it. It must answer now.

    Raises what SQLAlchemy and Optuna raise.
    """
    from optuna.storages import RDBStorage
    from sqlalchemy import event

    # Every connection is tried before its use. Otherwise those of before a restart fail, one after the other.
    storage = RDBStorage(address, engine_kwargs={"pool_pre_ping": True})
    event.listen(storage.engine, "do_connect", _connect)
    return storage


def _connect(dialect: Any, record: Any, arguments: Any, keywords: Any) -> Any:
    deadline, announced = time.monotonic() + OUTAGE_SECONDS, False
    while True:
        try:
            return dialect.connect(*arguments, **keywords)
        except dialect.loaded_dbapi.OperationalError:
            if time.monotonic() > deadline:
                raise
        if not announced:
            logging.getLogger(__name__).warning("The study's database does not answer; waiting for it.")
            announced = True
        time.sleep(1.0)


def lost_connection(error: BaseException) -> bool:
    """Return whether a statement failed because the database ended its connection. The caller may repeat it."""
    from optuna.exceptions import StorageInternalError

    reason: BaseException | None = error if isinstance(error, StorageInternalError) else None
    while reason is not None:
        if getattr(reason, "connection_invalidated", False):
            return True
        reason = reason.__cause__ or reason.__context__
    return False
