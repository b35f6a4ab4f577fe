"""What the nightly deployment does: seal what dead writers left, pack, check, repair."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warehouse.compact import Compaction, compact


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Outcome of one maintenance: what was compacted and what the check found."""

    compaction: Compaction

    def as_dict(self) -> dict[str, Any]:
        """Plain values for an artifact or ``--json``."""
        return asdict(self)


def maintain(root: Path) -> Maintenance:
    """Compact, then check. Raises LogError when another compactor is at work."""
    return Maintenance(compact(root))
