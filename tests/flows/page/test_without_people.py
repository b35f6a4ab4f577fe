"""The page of an installation without the package of people: its other pages work, and People names the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from flows.page.server import app_of
from warehouse import TurnLog, open_warehouse


@pytest.mark.usefixtures("without_packages")
def test_the_page_people_names_the_package_that_is_missing(tmp_path: Path) -> None:
    TurnLog.open(tmp_path, "r1").close()
    with open_warehouse(tmp_path) as warehouse, TestClient(app_of(warehouse)) as client:
        assert "pip install ./packages/userrl-people" in client.get("/people").text
        assert client.get("/").status_code == 200
