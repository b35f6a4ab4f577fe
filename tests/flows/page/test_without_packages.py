"""The page of an installation without packages: its other pages work, and what a package draws names the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from flows.page.server import app_of
from warehouse import TurnLog, open_warehouse


@pytest.mark.usefixtures("without_packages")
def test_a_page_of_a_missing_package_names_it(tmp_path: Path) -> None:
    TurnLog.open(tmp_path, "r1").close()
    with open_warehouse(tmp_path) as warehouse, TestClient(app_of(warehouse)) as client:
        assert "pip install ./packages/userrl-people" in client.get("/people").text
        assert "pip install ./packages/userrl-crossplay" in client.get("/cross-play/small").text
        assert client.get("/").status_code == 200
