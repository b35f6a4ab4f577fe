"""The nightly maintenance: repair, compact, check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warehouse.files.layout import default_root
from warehouse.upkeep.check import CheckReport, check
from warehouse.upkeep.compact import Compaction, compact


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The outcome of one maintenance: the compaction and the check's report."""

    compaction: Compaction
    report: CheckReport

    @property
    def sound(self) -> bool:
        """Return True if every problem was repaired."""
        return self.report.sound

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for an artifact or ``--json``."""
        return asdict(self)


def maintain(root: Path | str | None = None) -> Maintenance:
    """Repair, compact and check. The repair comes first, so that damage does not stop the compaction.

    The report holds both checks. Raises LogError when another compactor is running or the disk is full.
    """
    root = Path(root) if root is not None else default_root()
    first_report = check(root, repair=True)
    compaction = compact(root)
    report = check(root, full=False)
    report.problems = [problem for problem in first_report.problems if problem.repaired] + report.problems
    return Maintenance(compaction, report)
