"""A tenth of ``scripts/kills.py``: one run under ``make run``, killed in five ways on its way to the weights of a whole one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import free_port


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_dies_under_make_run_leaves_no_orphan_and_costs_no_weight():
    command = [sys.executable, "scripts/kills.py", "--times", "1", "--port", str(free_port())]
    root = Path(__file__).parents[2]
    busy = {**os.environ, "SLACK": "3"}  # other tests run beside this one
    played = subprocess.run(command, cwd=root, env=busy, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stdout.count("kill -9") == 5
