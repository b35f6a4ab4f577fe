"""The size of the warehouse, and the form of its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warehouse import schema
from warehouse.files.layout import take_snapshot
from warehouse.query.warehouse import open_warehouse
from warehouse.search.index import INDEX


@dataclass(slots=True)
class Stats:
    """Rows per table; files and bytes per form; runs. Superseded rows are counted in ``rows`` as well."""

    runs: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


def stats(root: Path) -> Stats:
    """Count rows, files and bytes."""
    with open_warehouse(root) as warehouse:
        rows = {t: int(warehouse.arrow(f"SELECT count(*) FROM store.{t}").column(0)[0].as_py()) for t in schema.LOGGED}
    snapshot = take_snapshot(root)
    forms = {
        "live": [path for paths in snapshot.live.values() for path in paths],
        "sealed": [path for paths in snapshot.sealed.values() for path in paths],
        "packs": [root / "packs" / name for name in snapshot.packs],
        "text index": [path for path in [root / INDEX] if path.exists()],
    }
    return Stats(
        runs=len(snapshot.runs),
        rows=rows,
        files={form: len(paths) for form, paths in forms.items()},
        bytes={form: sum(p.stat().st_size for p in paths if p.exists()) for form, paths in forms.items()},
    )
