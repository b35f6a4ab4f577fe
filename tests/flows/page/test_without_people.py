"""The page of an installation without the package of people: its other pages work, and People names the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from flows.page.server import app_of
from userrl_core.installed import same_name
from warehouse import TurnLog, open_warehouse


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment in which no package offers a part."""
    monkeypatch.setattr(same_name, "entry_points", lambda group: ())
    same_name.offered.cache_clear()
    yield
    same_name.offered.cache_clear()


@pytest.mark.usefixtures("without_packages")
def test_the_page_people_names_the_package_that_is_missing(tmp_path: Path) -> None:
    TurnLog.open(tmp_path, "r1").close()
    with open_warehouse(tmp_path) as warehouse, TestClient(app_of(warehouse)) as client:
        assert "pip install ./packages/userrl-people" in client.get("/people").text
        assert client.get("/").status_code == 200
