"""A team's set-up on one machine: Prefect's server and the study on PostgreSQL, three workers with folders of their own on one
shared home, and a queue of real runs.

Six runs: three trainings of a sweep and three collections of demonstrations. Twenty trainings would take minutes on two quiet
cores, since Prefect, torch and the stages of each start anew: 19 CPU-seconds a training, 8 a collection.
docs/recipes.md has figures of hundreds.
"""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from optuna.trial import TrialState

from sweeps.space import load_space
from sweeps.study import open_study
from tests.sweeps.postgres import MISSING, cluster, programs
from tests.sweeps.rig import TINY, Machine, results, small_space
from tests.sweeps.team import MEMBERS, join, lose, submitted
from tests.waits import wait_for
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
DEMONSTRATED = 3
GAMMAS = [0.6, 0.7, 0.8]


def trials(machine: Machine) -> list[dict[str, Any]]:
    return [run for run in machine.flow_runs() if "attempt" in (run["idempotency_key"] or "")]


def has_finished_a_stage(machine: Machine, name: str) -> bool:
    """Whether a trial of a worker has a first finished stage, and is at the next."""
    taken = submitted(machine, name)
    for path in machine.home.glob("runs/*/run.json"):
        finished = (path.parent / "stages" / "distill" / "result.json").exists()
        if finished and str(json.loads(path.read_text())["claimed_by"]) in taken:
            return True
    return False


def answers(machine: Machine, path: str) -> int:
    """The status with which the server answers a question to its database. 0: it does not answer."""
    try:
        return httpx.get(f"{machine.url}/{path}", timeout=60.0, trust_env=False, auth=machine.login).status_code
    except httpx.TransportError:
        return 0


def test_a_lost_worker_and_a_killed_database_lose_no_run_and_run_none_twice(tmp_path: Path) -> None:
    if (installed := programs()) is None:
        pytest.skip(MISSING)
    with cluster(installed) as database:
        machine = Machine(
            tmp_path / "home", slots="cpu-0,cpu-1,cpu-2", PREFECT_SERVER_DATABASE_CONNECTION_URL=database.prefect
        )
        space = small_space(
            tmp_path,
            overrides=TINY,
            parameters={"gamma": {"key": "credit.gamma", "options": GAMMAS}},
            budget={"trials": len(GAMMAS)},
            confirm={"seeds": []},
        )
        try:
            machine.server()
            machine.provision("sweep/gamma", "train/equalized-r2g", "distill/default")
            machine.worker("waits", "--work-queue", "sweeps")
            for name in MEMBERS:
                join(machine, name, tmp_path)
            sweep = machine.run("sweep/gamma", space=str(space), parallel=3, storage=database.optuna)
            wait_for(lambda: has_finished_a_stage(machine, "ann"), what="a first stage of ann's trial")
            lose(machine, tmp_path / "ann")
            before = results(machine.home)

            few = {"demonstrations.episodes": 20}
            asked = {"recipe": "equalized-r2g", "profile": "laptop-quick", "overrides": few}
            queued = [machine.run("distill/default", seed=seed, **asked) for seed in range(DEMONSTRATED)]
            running = {"flow_runs": {"id": {"any_": queued}, "state": {"type": {"any_": ["RUNNING"]}}}}
            wait_for(lambda: machine.flow_runs(**running), 600, "the first demonstrations")
            database.kill()
            # Clients ask again after a 503. After the 500 that is Prefect's own answer they would give up. The second
            # question fails in front of Prefect's routes.
            assert wait_for(lambda: answers(machine, f"flow_runs/{sweep}"), 60, "the server without database") == 503
            assert answers(machine, "csrf-token?client=test") == 503
            database.start()

            def ended() -> bool:
                states = {run["id"]: run["state"]["type"] for run in machine.flow_runs()}
                return all(states[run] in FINAL for run in (sweep, *queued))

            wait_for(ended, 1200, "the end of all runs")
            states = collections.Counter(machine.state(run) for run in (sweep, *queued))
            assert states == {"COMPLETED": 1 + DEMONSTRATED}, machine.logged(sweep) + machine.said()

            stored = open_study(load_space(space), tmp_path / "elsewhere", database.optuna, queue=False).trials
            assert [trial.state for trial in stored] == [TrialState.COMPLETE] * 3
            assert sorted(trial.params["gamma"] for trial in stored) == GAMMAS
            assert not (machine.home / "sweeps" / "tiny" / "journal.log").exists()
            # No finished stage was done again, the lost worker's included.
            after = results(machine.home)
            assert {path: after[path] for path in before} == before
            # The trial that the lost worker had begun was started once more. Nothing else was.
            assert collections.Counter(run["state"]["type"] for run in trials(machine)) == {
                "COMPLETED": 3,
                "CRASHED": 1,
            }
            taken = [submitted(machine, name) for name in MEMBERS]
            assert all(taken)
            assert sum(map(len, taken)) == len(set.union(*taken)) == 4 + DEMONSTRATED
            with open_warehouse(machine.home / "warehouse") as warehouse:
                recorded = warehouse.sql("SELECT state, count(*) FROM trials GROUP BY ALL").fetchall()
                rows = warehouse.sql(
                    "SELECT run_id, stage, phase, step, count(*) FROM trajectories GROUP BY ALL ORDER BY ALL"
                ).fetchall()
            assert recorded == [("complete", 3)]
            played = collections.defaultdict(list)
            for run, *counted in rows:
                played[run].append(tuple(counted))
            # The interrupted trial has as many conversations of each step as the others.
            shapes = collections.Counter(map(tuple, played.values()))
            assert sorted(shapes.values()) == [3, DEMONSTRATED]
            assert (("distill", "distill", 0, 20),) in shapes
        finally:
            machine.kill_everything()
