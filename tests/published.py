"""The folder of the published task files, for tests that read them; these are skipped where the files are absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.places import ROOT


def published(part: str) -> Path:
    """The folder ``part`` (``userrl``, ``tau-bench``, ``agentgym``, ``userbench``) of the published data; skips without it."""
    variable = os.environ.get("USERRL_PUBLISHED_DATA")
    root = Path(variable) if variable else ROOT.parent / "shared" / "data"
    folder = root / part
    if not folder.is_dir():
        pytest.skip(f"published data not present ({part}); set USERRL_PUBLISHED_DATA to a folder that holds it")
    return folder
