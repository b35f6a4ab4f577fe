from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compactions remove their sources at once: no test needs to wait, and readers must stand the hardest case."""
    monkeypatch.setattr("warehouse.upkeep.compact.GRACE_SECONDS", 0.0)
