"""What the nightly deployment does: compact, then check and repair."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warehouse.check import Report, check
from warehouse.compact import Compaction, compact


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Outcome of one maintenance: what was compacted and what the check found."""

    compaction: Compaction
    report: Report

    @property
    def sound(self) -> bool:
        """Nothing is wrong that was not repaired."""
        return self.report.sound

    def as_dict(self) -> dict[str, Any]:
        """Plain values for an artifact or ``--json``."""
        return asdict(self)


def maintain(root: Path) -> Maintenance:
    """Compact, check, repair. Raises LogError when another compactor is at work or the disk is full."""
    return Maintenance(compact(root), check(root, repair=True))
