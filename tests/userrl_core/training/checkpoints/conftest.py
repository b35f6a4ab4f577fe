"""The home is made once; a test that damages it copies it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.userrl_core.training.checkpoints.makers import make_home


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made-home")
    make_home(home)
    return home


@pytest.fixture
def home(made_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the home, which is also one that was moved."""
    shutil.copytree(made_home, tmp_path / "home")
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
