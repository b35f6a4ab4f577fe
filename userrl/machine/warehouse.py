"""``userrl.warehouse`` and ``userrl.sql``: access to every turn of every conversation of this home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from warehouse import Warehouse


def warehouse(run: str | None = None) -> Warehouse:
    """Open this home's warehouse read-only, for use in a ``with`` block. run: open only this run's files, which is faster.

    Raises ConfigError if nothing was recorded yet.
    """
    from userrl.machine.home import warehouse_dir
    from warehouse import open_warehouse

    return open_warehouse(warehouse_dir(), run=run)


def sql(text: str, **parameters: Any) -> pl.DataFrame:
    """Run one SQL query on this home's warehouse. parameters: values for ``$name`` in the text.

    `from dictionary` lists tables and columns. The text is trusted: it runs in this process without limits.
    """
    with warehouse() as opened:
        rows: pl.DataFrame = opened.sql(text, **parameters).pl()
        return rows
