"""Settings of all tests: the same examples of properties on every machine, the tests that `make test-fast` leaves out, and the
order of test files among several workers.

A property is tried without a deadline: a failure is due to a change, not to the draw or the machine. `HYPOTHESIS_PROFILE=explore
pytest` searches for new examples; add a failing one to the test as an `@example`.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import prepared as prepared_process
from tests.places import TESTS
from tests.times import Times
from userrl_core.installed import same_name

settings.register_profile(
    "same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=50
)
settings.register_profile("explore", settings.get_profile("same"), derandomize=False, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

NOT_FAST = {
    **dict.fromkeys(
        (
            f"userrl/{name}"
            for name in [
                "audits",
                "branching",
                "claims",
                "comparison",
                "evaluation",
                "machine",
                "reports",
                "run",
                "stages",
                "trials",
                "worker",
            ]
        ),
        "trains, plays and evaluates, for minutes in all",
    ),
    "packages/crossplay": "measures studies, for a minute in all",
    "packages/people": "trains a checkpoint to play with, and plays",
    "packages/sharing": "trains what is shared, for a minute in all",
    "sweeps": "sweeps from beginning to end, for a minute in all",
    "userrl_core/training/verl": "starts Ray",
    "warehouse": "kills writers and waits for the disk thousands of times; alone it takes minutes",
}
"""Folders that `pytest --fast` leaves out, and why. Tests with a marker are left out as ever."""

TRAINS = ("start", "made_home")
"""Fixtures that train. `pytest --fast` leaves out the tests that ask for one."""

STARTED = re.compile(r"python|userrl|prefect|chrom|initdb|postgres")
"""Programs that `pytest --fast` starts no process of: each imports for seconds, or is a server. It takes no port either."""

LONGEST = (
    "userrl_core/training/verl/test_verl_flow.py",
    "sweeps/test_sweep_survival.py",
    "sweeps/test_sweep_machines.py",
    "userrl_core/training/verl/test_verl_stages.py",
    "sweeps/test_team.py",
    "flows/test_survival.py",
    "userrl/run/test_laptop_recipes.py",
    "userrl_core/training/verl/test_verl_algorithms.py",
    "userrl_core/training/verl/test_verl_worker.py",
    "userrl/run/test_all_recipes.py",
    "flows/test_fork.py",
    "warehouse/test_views.py",
    "warehouse/test_compact.py",
    "warehouse/test_sql_command.py",
    "warehouse/test_safe.py",
    "flows/server/test_locked_server.py",
    "userrl/evaluation/test_evaluate_served.py",
)
"""Test files that take minutes, the longest first, and those that are long in the quick suite. With `--dist loadfile`, a long file
that begins last leaves a core idle. A start of verl uses all cores: one file begins at first, and the others beside sweeps, which
mostly wait.
"""


IN_MEMORY, ROOM = Path("/dev/shm"), 4 * 2**30
"""A file system in memory, and the bytes that it must have free. Tests flush files tens of thousands of times, and a disk takes 4
to 8 ms for each flush.
"""


def pytest_configure(config: pytest.Config) -> None:
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
    if config.option.xmlpath:
        config.pluginmanager.register(Times())
    if hasattr(config.option, "loadscopereorder"):  # xdist would begin with the files of the most tests
        config.option.loadscopereorder = False
    if config.getoption("--fast") and not getattr(config.option, "numprocesses", None):  # its workers run the tests
        sys.addaudithook(skip_what_starts)


def skip_what_starts(event: str, arguments: tuple[Any, ...]) -> None:
    """End a test of `pytest --fast` where it, or a fixture that it asks for, takes a port or starts one of these programs."""
    if event not in ("subprocess.Popen", "socket.bind") or threading.current_thread() is not threading.main_thread():
        return
    first = arguments[1] if isinstance(arguments[1], str) else arguments[1][0]
    if event == "socket.bind" and first in (
        "",
        "0.0.0.0",
        "127.0.0.1",
        "localhost",
    ):  # not ::1, which urllib3 takes to see whether there is IPv6
        pytest.skip("--fast starts no server", allow_module_level=True)
    if event == "subprocess.Popen" and STARTED.match(os.fsdecode(first).rpartition("/")[2]):
        pytest.skip("--fast starts no such process", allow_module_level=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Leave modules and collected tests out of garbage collection, which would look through a million objects each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        gc.enable()


def pytest_unconfigure() -> None:
    """Let the end of the process collect everything: DuckDB's bindings list what is left."""
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files, and leave out what was not asked for: the marker full, and under --fast what trains."""
    place = {f"tests/{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))
    left_out = {item for item in items if is_left_out(item, config)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def is_left_out(item: pytest.Item, config: pytest.Config) -> bool:
    """Return whether a test runs only with --full, or never with --fast."""
    if item.get_closest_marker("full") and not config.getoption("--full"):
        return True
    return bool(config.getoption("--fast")) and any(fixture in TRAINS for fixture in getattr(item, "fixturenames", ()))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run the further cases of slow tests (marker full)")
    parser.addoption("--fast", action="store_true", help="leave out what starts processes or computes for long")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a folder or module is left out. It is not imported: that alone takes longer than many tests."""
    if collection_path.suffix == ".py" and collection_path.name.startswith("test_"):
        return True if no_test_of(collection_path.read_text(), config.option.markexpr) else None
    left_out = collection_path in [TESTS / folder for folder in NOT_FAST]
    return True if left_out and config.getoption("--fast") else None


def no_test_of(module: str, wanted: str) -> bool:
    """Whether the text of a test module shows that it has no test with the wanted markers."""
    if wanted == "slow":
        return "mark.slow" not in module
    whole = re.search(r"^pytestmark = \[?pytest\.mark\.(slow|vllm)\b", module, re.MULTILINE)
    return whole is not None and f"not {whole[1]}" in wanted


@pytest.fixture(autouse=True)
def _no_package_stays_hidden() -> Iterator[None]:
    """Show packages again that a stage in this process has hidden (`userrl.worker.main.UNUSED`)."""
    yield
    for name in [name for name, module in sys.modules.items() if module is None]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def _prepared_process() -> Iterator[None]:
    with prepared_process.server():
        yield


@pytest.fixture
def prepared(_prepared_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork processes of Python from one that has imported everything, for tests in which the process is not the subject."""
    monkeypatch.setattr(subprocess, "Popen", prepared_process.Popen)


@pytest.fixture(scope="module")
def prepared_module(_prepared_process: None) -> Iterator[None]:
    """As `prepared`, for all tests and fixtures of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", prepared_process.Popen)
        yield


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment in which no package offers a part of the library."""
    monkeypatch.setattr(same_name, "entry_points", lambda group: ())
    same_name.offered.cache_clear()
    yield
    same_name.offered.cache_clear()
