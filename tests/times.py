"""What each test costs, as properties in pytest's JUnit file, for `scripts/test_times.py`.

Recorded are CPU seconds of this process and of the processes that a test waited for, and the processes that it started, by kind.
"""

from __future__ import annotations

import collections
import os
import re
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

KINDS = {
    "Ray": r"raylet|gcs_server|/ray/",
    "browser": r"chrome|chromium",
    "Prefect server": r"prefect_server|server start|prefect\.server|(main|userrl)\S* server\b",
    "flow": r"flows\.(train|sweep|evaluate|distill|reproduce|maintain)|prefect\.(engine|flow_engine)",
    "stage's worker": r"userrl\.worker|--fork-server",
    "command": r"flows\.cli|/userrl |/prefect ",
    "other process": "",
}
"""Kinds of processes, and what the command line of each contains. The first match counts."""


class Times:
    """A plugin of pytest, for runs that write a JUnit file."""

    def __init__(self) -> None:
        self._started: collections.Counter[str] = collections.Counter()
        self._before = _cpu_seconds()
        sys.addaudithook(self._count)

    def _count(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            words = arguments[1]
            line = words if isinstance(words, str) else " ".join(map(os.fsdecode, words))
            self._started[next(kind for kind, pattern in KINDS.items() if re.search(pattern, line))] += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[Any]:
        """Begin to count."""
        self._started.clear()
        self._before = _cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[Any]:
        """Add the counts to a test's last report, which the JUnit file takes them from."""
        report = yield
        if call.when == "teardown":
            here, children = (now - before for now, before in zip(_cpu_seconds(), self._before, strict=True))
            counts = ((f"started {kind}", count) for kind, count in self._started.items())
            report.user_properties += [("cpu", f"{here:.3f}"), ("cpu_children", f"{children:.3f}"), *counts]
        return report


def _cpu_seconds() -> tuple[float, float]:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), children.ru_utime + children.ru_stime
