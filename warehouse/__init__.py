"""The warehouse: every turn of every run in DuckDB, and SQL over all of them.

Imports nothing heavy until something is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.log import TurnLog
    from warehouse.read import Warehouse, open_warehouse
    from warehouse.store import RunRecord, default_root, maintain, register_run

__all__ = ["RunRecord", "TurnLog", "Warehouse", "default_root", "maintain", "open_warehouse", "register_run"]

_HOMES = {
    "TurnLog": "warehouse.log",
    "Warehouse": "warehouse.read",
    "open_warehouse": "warehouse.read",
    "RunRecord": "warehouse.store",
    "default_root": "warehouse.layout",
    "maintain": "warehouse.store",
    "register_run": "warehouse.store",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'warehouse' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
