"""The cost of an episode's database: a layer over shared records, or a private SQLite copy. Prints a table, asserts nothing.

    python -m lab.benchmarks.tau_stores [DIR]      DIR: a copy of tau-bench's data, for retail and airline

Prints medians over tasks for each domain and store, in ms of wall time on one core: start of an episode (reset), a gold
call, and both verdicts at the end (verification, with its replay of the gold writes). The limits are 50 ms and 1 s.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import get_args

from userrl_core.gyms.tau.stores import Store, open_database
from userrl_core.gyms.tau.tasks import domain_tasks, load_domain
from userrl_core.gyms.tau.tools import ToolError
from userrl_core.gyms.tau.verifier import Write, replay, verify

TASKS = 100


def milliseconds(domain_name: str, root: Path, store: Store) -> tuple[float, float, float]:
    """Return the milliseconds of reset, gold call and verification."""
    tasks, folder = domain_tasks(domain_name, root)
    domain = load_domain(domain_name, folder)
    open_database(domain, folder, domain.base, store).close()  # the template is made once
    resets, calls, verdicts = [], [], []
    for task in tasks[:TASKS]:
        base = task.payload.get("tables", domain.base)
        began = time.perf_counter()
        database = open_database(domain, folder, base, store)
        resets.append(time.perf_counter() - began)
        writes: list[Write] = []
        for action in task.payload["actions"]:
            began = time.perf_counter()
            try:
                domain.call(database, action["name"], action["kwargs"])
                writes += [(action["name"], action["kwargs"])] if action["name"] in domain.writes else []
            except ToolError:
                pass
            calls.append(time.perf_counter() - began)
        began = time.perf_counter()
        gold = replay(domain, task.payload["actions"], base)
        verify(gold, writes, database, task.payload["outputs"], [])
        verdicts.append(time.perf_counter() - began)
        database.close()
    reset, call, verdict = (statistics.median(values) * 1e3 for values in (resets, calls, verdicts))
    return reset, call, verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, nargs="?")
    root = parser.parse_args().root
    print(f"{'domain':<16} {'store':<8} {'reset':>10} {'gold call':>12} {'verification':>14}")
    for name in ("outfitter-tiny", "outfitter", "bikes", *(("retail", "airline") if root else ())):
        for store in get_args(Store):
            reset, call, verdict = milliseconds(name, root or Path(), store)
            print(f"{name:<16} {store:<8} {reset:>7.3f} ms {call:>9.3f} ms {verdict:>11.3f} ms")


if __name__ == "__main__":
    main()
