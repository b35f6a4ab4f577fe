"""The rules of the house hold: no circle, no upward import, a drawing of today's code."""

import subprocess
import sys

from tests.conftest import NOT_FAST
from tests.places import ROOT


def test_the_structure_keeps_its_rules_and_the_drawing_is_of_this_code() -> None:
    measured = subprocess.run(
        [sys.executable, "scripts/architecture.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert measured.returncode == 0, measured.stdout + measured.stderr
    assert measured.stdout.startswith("0 circles, 0 upward arrows, 0 pairs of folders that import each other\n")


def test_the_folders_that_the_fast_tests_leave_out_are_there() -> None:
    assert [name for name in NOT_FAST if not (ROOT / "tests" / name / "__init__.py").is_file()] == []
