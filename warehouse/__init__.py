"""The warehouse: every turn of every run in DuckDB, and SQL over all of them.

Importing it loads nothing heavy. Each name below loads its module when it is first used, because DuckDB and pyarrow
take a quarter of a second. No other place in the warehouse imports its own modules late.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.files.layout import default_root
    from warehouse.query.warehouse import Warehouse, open_warehouse
    from warehouse.upkeep.maintain import maintain
    from warehouse.write.turn_log import TurnLog

__all__ = ["TurnLog", "Warehouse", "default_root", "maintain", "open_warehouse"]

_MODULES = {
    "TurnLog": "warehouse.write.turn_log",
    "Warehouse": "warehouse.query.warehouse",
    "default_root": "warehouse.files.layout",
    "maintain": "warehouse.upkeep.maintain",
    "open_warehouse": "warehouse.query.warehouse",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'warehouse' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
