from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.warehouse.torture import torture


@pytest.mark.slow
def test_six_kills_lose_nothing_double_nothing_and_fool_no_reader(tmp_path: Path) -> None:
    outcome = torture(tmp_path, 6)
    assert outcome.sound, outcome
    assert outcome.kills == 6
    assert outcome.acknowledged > 6
    assert outcome.reader_queries > 0


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_warehouse_stands_a_tenth_of_the_attack() -> None:
    command = [sys.executable, "-m", "lab.checks.warehouse_safety", "--kills", "30", "--flips", "20", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
