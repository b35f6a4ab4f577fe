"""Settings of all tests: the same examples of properties on every machine, and the tests that `make test-fast` leaves out.

A property is tried without a deadline: a failure is due to a change, not to the draw or the machine. `HYPOTHESIS_PROFILE=explore
pytest` searches for new examples; add a failing one to the test as an `@example`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

NOT_FAST = {
    "flows": "starts Prefect's server, whole runs, and commands as processes",
    "page": "drives a browser",
    "sweeps": "starts Prefect's server and a database",
    "verl": "starts Ray",
    "warehouse": "kills writers and waits for the disk thousands of times; alone it takes minutes",
}
"""Folders that `pytest --fast` leaves out, and why. Tests with a marker are left out as ever."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out the folders of tests/conftest.py's NOT_FAST")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a folder is left out. Its modules are not imported: that alone takes longer than many tests."""
    left_out = collection_path.parent == Path(__file__).parent and collection_path.name in NOT_FAST
    return True if left_out and config.getoption("--fast") else None
