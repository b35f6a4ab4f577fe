"""Queue time, overhead and database of hundreds of runs: Prefect's server on PostgreSQL, three workers, one shared home.

    python -m lab.benchmarks.team [--runs 300] [--members ann bob eve]

Each run is a real collection of twenty demonstrations. All of them are queued at once. A worker takes one at a time. The set-up is
that of tests/sweeps/test_team.py. Printed are

- the pause of a worker between two runs, and the time in the queue;
- the overhead of a run: from its worker's decision to its end, without the seconds of its stage;
- CPU seconds per run of workers (flows and stages included) and server, which alone compare on a busy machine;
- the database's size per run, and its largest tables;
- retention: half of the runs and events become 100 days old. Prefect's vacuum deletes runs after 90 days if it is asked to, and
  events after 7 days in any case.

It needs Debian's package postgresql.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import psutil

from tests.sweeps.postgres import MISSING, Cluster, cluster, programs
from tests.sweeps.rig import Machine, wait_for
from tests.sweeps.team import MEMBERS, join, submitted

ASKED = {"recipe": "equalized-r2g", "profile": "laptop-quick", "overrides": {"demonstrations.episodes": 20}}
TIMES = """
SELECT f.id, extract(epoch FROM f.expected_start_time), extract(epoch FROM min(s.timestamp) FILTER (WHERE s.type = 'PENDING')),
    extract(epoch FROM f.start_time), extract(epoch FROM f.end_time),
    (SELECT coalesce(sum(extract(epoch FROM t.end_time - t.start_time)), 0) FROM task_run t WHERE t.flow_run_id = f.id)
FROM flow_run f JOIN flow_run_state s ON s.flow_run_id = f.id
WHERE f.state_type = 'COMPLETED' GROUP BY f.id ORDER BY 3"""
SIZES = """
SELECT relname || ' ' || pg_size_pretty(pg_total_relation_size(relid)) || ' in ' || n_live_tup || ' rows'
FROM pg_stat_user_tables ORDER BY pg_total_relation_size(relid) DESC LIMIT 6"""
AGE = """
UPDATE flow_run SET end_time = end_time - interval '100 days'
WHERE id IN (SELECT id FROM flow_run ORDER BY end_time LIMIT {half});
UPDATE events SET occurred = occurred - interval '100 days' WHERE occurred < (SELECT percentile_disc(0.5)
WITHIN GROUP (ORDER BY occurred) FROM events);
UPDATE event_resources SET occurred = occurred - interval '100 days'
WHERE event_id IN (SELECT id FROM events WHERE occurred < now() - interval '90 days')"""
LEFT = """
SELECT (SELECT count(*) FROM flow_run WHERE end_time < now() - interval '90 days')
    + (SELECT count(*) FROM log WHERE flow_run_id NOT IN (SELECT id FROM flow_run))
    + (SELECT count(*) FROM event_resources WHERE occurred < now() - interval '90 days')
    + (SELECT count(*) FROM events WHERE occurred < now() - interval '90 days')"""
GROWING = ("flow_run", "flow_run_state", "task_run", "log", "artifact", "events", "event_resources")
VACUUM = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "5",
}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--members", nargs="+", default=MEMBERS)
    given = parser.parse_args()
    if (installed := programs()) is None:
        sys.exit(MISSING)
    with cluster(installed) as database, tempfile.TemporaryDirectory(prefix="userrl-team-") as folder:
        slots = ",".join(f"cpu-{number}" for number in range(len(given.members)))
        machine = Machine(Path(folder) / "home", slots=slots, PREFECT_SERVER_DATABASE_CONNECTION_URL=database.prefect)
        try:
            measure(machine, database, Path(folder), given.members, given.runs)
        finally:
            machine.kill_everything()


def measure(machine: Machine, database: Cluster, folder: Path, members: Sequence[str], runs: int) -> None:
    """Queue the runs, wait for them, and print what they took."""
    machine.server()
    machine.provision("distill/default")
    empty = size(database)
    began, cpu_before = time.monotonic(), cpu(machine)
    for seed in range(runs):
        machine.run("distill/default", seed=seed, **ASKED)
    queued = time.monotonic() - began
    for name in members:
        join(machine, name, folder)
    ended = "SELECT count(*) FROM flow_run WHERE state_type IN ('COMPLETED', 'FAILED', 'CRASHED', 'CANCELLED')"
    wait_for(lambda: int(database.ask(ended)) == runs, 600 + 120 * runs, "the end of all runs")
    wall = time.monotonic() - began
    used = {name: after - cpu_before.get(name, 0.0) for name, after in cpu(machine).items()}
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{runs} runs, {len(members)} workers, {os.cpu_count()} cores, load {load}: {wall:.0f} s")
    print(f"queueing: {queued:.1f} s for all")
    print_times(machine, database, members, runs)
    for name, seconds in used.items():
        print(f"CPU of {name}: {seconds / runs:.2f} s per run")
    database.ask("VACUUM ANALYZE")
    full = size(database)
    print(
        f"database: {empty / 1e6:.1f} MB empty, {full / 1e6:.1f} MB after the runs, {(full - empty) / runs / 1e3:.1f} kB per run"
    )
    print("\n".join(f"  {row}" for row in database.ask(SIZES).splitlines()))
    retain(machine, database, runs)


def print_times(machine: Machine, database: Cluster, members: Sequence[str], runs: int) -> None:
    """Print the times of the completed runs."""
    rows = [line.split("|") for line in database.ask(TIMES).splitlines()]
    if len(rows) < runs:
        print(f"not completed: {runs - len(rows)}")
    times = {run: tuple(map(float, numbers)) for run, *numbers in rows}
    pauses = []
    for name in members:
        own = sorted((times[run] for run in submitted(machine, name) if run in times), key=itemgetter(1))
        pauses += [after[1] - before[3] for before, after in pairwise(own)]
    show("in the queue", [taken - expected for expected, taken, _, _, _ in times.values()])
    show("pause of a worker between two runs", pauses)
    show("from taken to running", [start - taken for _, taken, start, _, _ in times.values()])
    show("overhead of a run", [end - taken - stage for _, taken, _, end, stage in times.values()])
    show("its stage", [stage for *_, stage in times.values()])


def show(what: str, seconds: Sequence[float]) -> None:
    """Print a line of seconds."""
    if seconds:
        late = sorted(seconds)[min(len(seconds) - 1, int(0.95 * len(seconds)))]
        middle = statistics.median(seconds)
        print(f"{what}: median {middle:.1f} s, 95th percentile {late:.1f} s, maximum {max(seconds):.1f} s")


def retain(machine: Machine, database: Cluster, runs: int) -> None:
    """Print what Prefect's vacuum deletes once half of the runs and events are old, and the size afterwards."""
    machine.kill_everything()
    for statement in AGE.format(half=runs // 2).split(";"):
        database.ask(statement)
    before = rows_of(database)
    machine.environment |= VACUUM
    machine.server()
    wait_for(lambda: database.ask(LEFT) == "0", 900, "the deletion of old runs and events")
    deleted = ", ".join(
        f"{before[table] - count:,} of {before[table]:,} {table}" for table, count in rows_of(database).items()
    )
    left = size(database)
    machine.kill_everything()
    database.ask("VACUUM FULL")
    print(f"retention deleted {deleted}")
    print(f"database: {left / 1e6:.1f} MB afterwards, {size(database) / 1e6:.1f} MB after VACUUM FULL")


def rows_of(database: Cluster) -> dict[str, int]:
    """Return the number of rows of the tables that grow."""
    return {table: int(database.ask(f"SELECT count(*) FROM {table}")) for table in GROWING}


def size(database: Cluster) -> int:
    """Return the bytes of Prefect's database."""
    return int(database.ask("SELECT pg_database_size('prefect')"))


def cpu(machine: Machine) -> dict[str, float]:
    """Return the CPU seconds of workers, with the ended processes that they started, and of the server."""
    used = {"workers": 0.0, "server": 0.0}
    for process in machine.processes():
        with contextlib.suppress(psutil.Error):
            words, times = process.cmdline(), process.cpu_times()
            kind = "server" if "flows.server.prefect_server" in words else "workers" if "worker" in words else None
            if kind is not None:
                used[kind] += times.user + times.system + times.children_user + times.children_system
    return used


if __name__ == "__main__":
    main()
