"""Print where the time of a test run goes, by cause, folder, file and test.

    python -m pytest -n 2 --dist loadfile --junitxml times.xml
    python scripts/test_times.py times.xml [--rows 20]

`tests/times.py` adds to the JUnit file what each test cost. All figures are seconds. `wall` is the time on a worker. `here` is CPU
time of the worker's process, and `children` CPU time of the processes that a test started and waited for. The rest of the wall
time is `waiting`: for a timer, a disk, a server, or a core that something else uses. A test counts for the first cause that
it has. Work of a shared fixture counts for the test that asked first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

CAUSES = ("Ray", "browser", "Prefect server", "flow", "stage's worker", "command", "other process")
"""Kinds of processes in `tests/times.py`, the most expensive first."""


class Cost(NamedTuple):
    """What one test cost."""

    file: str
    name: str
    cause: str
    processes: int
    wall: float
    here: float
    children: float

    @property
    def waiting(self) -> float:
        """Wall time without CPU time. Children may use two cores at once."""
        return max(0.0, self.wall - self.here - self.children)


def costs(junit: Path) -> list[Cost]:
    """Read a JUnit file."""
    return [_cost(case) for case in ElementTree.parse(junit).iter("testcase")]


def _cost(case: ElementTree.Element) -> Cost:
    values = {item.get("name", ""): float(item.get("value", 0)) for item in case.iter("property")}
    started = {name.removeprefix("started "): int(n) for name, n in values.items() if name.startswith("started ")}
    alone = "computing here" if values.get("cpu", 0.0) >= 0.5 * float(case.get("time", 0)) else "waiting here"
    cause = next((cause for cause in CAUSES if cause in started), alone)
    file = case.get("classname", "").removeprefix("tests.").replace(".", "/")
    seconds = (float(case.get("time", 0)), values.get("cpu", 0.0), values.get("cpu_children", 0.0))
    return Cost(file, case.get("name", ""), cause, sum(started.values()), *seconds)


def table(title: str, costs: Iterable[Cost], key: Callable[[Cost], str], rows: int) -> str:
    """Return the largest groups of tests with the same key, one line each."""
    groups: dict[str, list[Cost]] = {}
    for cost in costs:
        groups.setdefault(key(cost), []).append(cost)
    lines = [f"{title:60}  tests  processes     wall     here  children  waiting"]
    for name, group in sorted(groups.items(), key=lambda item: -sum(cost.wall for cost in item[1]))[:rows]:
        wall, here, children, waiting = (
            sum(values) for values in zip(*((c.wall, c.here, c.children, c.waiting) for c in group), strict=True)
        )
        processes = sum(cost.processes for cost in group)
        lines.append(
            f"{name[:60]:60} {len(group):6,} {processes:10,} {wall:8.1f} {here:8.1f}  {children:8.1f} {waiting:8.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print where the time of a test run goes.")
    parser.add_argument("junit", type=Path, help="a file of pytest's --junitxml")
    parser.add_argument("--rows", type=int, default=20, help="rows of the tables of files and tests")
    arguments = parser.parse_args()
    all_costs = costs(arguments.junit)
    tables = [
        table("all", all_costs, lambda cost: "all tests", 1),
        table("cause", all_costs, lambda cost: cost.cause, 99),
        table("folder", all_costs, lambda cost: cost.file.partition("/")[0], 99),
        table("file", all_costs, lambda cost: cost.file, arguments.rows),
        table("test", all_costs, lambda cost: f"{cost.file.rpartition('/')[2]}::{cost.name}", arguments.rows),
    ]
    print("\n\n".join(tables))


if __name__ == "__main__":
    main()
