"""``userrl.bundle``: a static copy of a run's page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from userrl.reports.bundle.write_bundle import Bundled


def bundle(run: str, out: str, *, seed: int = 0, people: bool = False, imported: bool = False) -> Bundled:
    """Write a static copy of a run's page into a folder. It opens from a file and from any web host, without scripts.

    out: a new or empty folder, or one with an earlier bundle. seed: draws fifty conversations. people, imported: include
    conversations with people, and conversations of imported tasks. Raises ConfigError for a run without a report.
    """
    from userrl.machine.home import warehouse_dir
    from userrl.reports.bundle.write_bundle import Shared, write_bundle
    from userrl.reports.run_report import read_report
    from userrl.run.run import find
    from warehouse import open_warehouse

    report = read_report(find(run))
    with open_warehouse(warehouse_dir()) as warehouse:
        return write_bundle(report, warehouse, Path(out), seed=seed, shared=Shared(people, imported))
