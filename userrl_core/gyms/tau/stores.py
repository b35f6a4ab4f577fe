"""The database of an episode: a layer over shared records, or its own copy in SQLite.

Both answer every call alike. ``memory`` is for training: starting an episode is free. ``sqlite`` is the store of each
session of `userrl serve-tools` (TARL 2.1); data/tau/README.md has its costs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from userrl_core.gyms.tau.database import Database, Tables
from userrl_core.gyms.tau.relational import SqliteDatabase, Template
from userrl_core.gyms.tau.tasks import load_domain
from userrl_core.gyms.tau.tools import Domain

Store = Literal["memory", "sqlite"]


def open_database(domain: Domain, folder: str | None, base: Tables, store: Store) -> Database:
    """Open a database for one episode. folder: of the domain's data. base: the domain's records, or the task's own."""
    if store == "memory":
        return Database(base)
    return SqliteDatabase(_template(domain.name, folder) if base is domain.base else Template(base))


@lru_cache(maxsize=8)
def _template(name: str, folder: str | None) -> Template:
    return Template(load_domain(name, folder).base)
