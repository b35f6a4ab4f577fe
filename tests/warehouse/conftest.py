from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compactions remove their sources at once: readers must stand the hardest case.

    The only constant of ours that tests change. It is a wait and nothing else: with it the hundred compactions of these
    tests would take a hundred seconds longer, and what is tested would be easier.
    """
    monkeypatch.setattr("warehouse.upkeep.compact.GRACE_SECONDS", 0.0)
