"""The warehouse: every turn of every run in DuckDB, and SQL over all of them.

Imports nothing heavy until something is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.files.layout import default_root
    from warehouse.files.runs import RunRecord, register_run
    from warehouse.query.connection import Warehouse, open_warehouse
    from warehouse.upkeep.maintain import maintain
    from warehouse.write.turn_log import TurnLog

__all__ = ["RunRecord", "TurnLog", "Warehouse", "default_root", "maintain", "open_warehouse", "register_run"]

_HOMES = {
    "TurnLog": "warehouse.write.turn_log",
    "Warehouse": "warehouse.query.connection",
    "open_warehouse": "warehouse.query.connection",
    "RunRecord": "warehouse.files.runs",
    "default_root": "warehouse.files.layout",
    "maintain": "warehouse.upkeep.maintain",
    "register_run": "warehouse.files.runs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'warehouse' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
