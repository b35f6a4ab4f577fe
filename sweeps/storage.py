"""The storage address of a study, without its password, which stays in memory, in a flow's parameter or in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from userrl_core.errors import ConfigError

VARIABLE = "USERRL_SWEEP_STORAGE"
"""Environment variable with the whole address, so that it need not be a flow's parameter."""

HIDDEN = "***"
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
