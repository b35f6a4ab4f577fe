"""How large the warehouse is, and in what form its rows lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warehouse import schema
from warehouse.files.layout import Manifest, run_folders, snapshot


@dataclass(slots=True)
class Stats:
    """Rows per table; files and bytes per form; runs. Superseded rows are counted in ``rows`` as well."""

    runs: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)


def stats(root: Path) -> Stats:
    """Count rows, files and bytes."""
    from warehouse.query.connection import open_warehouse

    with open_warehouse(root) as warehouse:
        rows = {t: int(warehouse.arrow(f"SELECT count(*) FROM store.{t}").column(0)[0].as_py()) for t in schema.LOGGED}
    seen = snapshot(root)
    forms = {
        "live": [path for paths in seen.live.values() for path in paths],
        "sealed": [path for paths in seen.sealed.values() for path in paths],
        "packs": [root / "packs" / name for name in Manifest.read(root).packs],
        "text index": [path for path in [root / "search.sqlite"] if path.exists()],
    }
    return Stats(
        runs=len(run_folders(root)),
        rows=rows,
        files={form: len(paths) for form, paths in forms.items()},
        bytes={form: sum(p.stat().st_size for p in paths if p.exists()) for form, paths in forms.items()},
    )
