"""Sweeps beyond one process: a clock starts one, and two workers that share only files and Postgres take one apart."""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState

from sweeps.space import load_space
from sweeps.study import open_study
from tests.sweeps.rig import SMALL, Machine, free_port, small_space, wait_for
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def submitted(log: str) -> set[str]:
    """The flow runs that a worker started. Two may reach for the same one; the server then turns the second away."""
    reached, refused = (
        set(re.findall(rf"{words} flow run '([0-9a-f-]+)'", log)) for words in ("submitting", "Aborted submission of")
    )
    return reached - refused


def test_a_cron_schedule_fires_a_sweep_that_trains(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home")
    space = small_space(
        tmp_path,
        parameters={"gamma": {"key": "credit.gamma", "options": [0.8]}},
        budget={"trials": 1},
        confirm={"seeds": []},
    )
    try:
        machine.server()
        machine.provision("sweep/gamma", "train/equalized-r2g")
        machine.worker("one")
        deployment = machine.post("deployments/name/sweep/gamma", method="GET")["id"]
        parameters = {"space": str(space), "trials": 1, "poll_seconds": 0.5, "renew": True}
        every_minute = {"schedule": {"cron": "* * * * *", "timezone": "UTC"}, "active": True, "parameters": parameters}
        (schedule,) = machine.post(f"deployments/{deployment}/schedules", [every_minute])

        sweeps = {"deployments": {"id": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_ASC"}

        def begun() -> list[dict[str, object]]:
            return [run for run in machine.flow_runs(**sweeps) if run["start_time"] is not None]

        first = wait_for(begun, 240, "a scheduled sweep")[0]
        machine.post(f"deployments/{deployment}/schedules/{schedule['id']}", method="DELETE")
        wait_for(lambda: machine.state(str(first["id"])) in FINAL, 600, "its end")

        assert machine.state(str(first["id"])) == "COMPLETED", machine.said()
        assert first["auto_scheduled"]
        with open_warehouse(machine.home / "warehouse") as warehouse:
            assert warehouse.sql("select study, number, state from trials where study = 'tiny'").fetchall() == [
                ("tiny", 0, "complete")
            ]
        (trial,) = [run for run in machine.flow_runs() if "attempt" in (run["idempotency_key"] or "")]
        link = machine.post(f"task_runs/{trial['parent_task_run_id']}", method="GET")
        assert (link["flow_run_id"], trial["name"]) == (first["id"], "gamma=0.8")
    finally:
        machine.kill_everything()


def test_a_run_that_is_watched_by_prefect_shows_its_steps_and_a_failure_its_sentence(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "home")

    def watched(overrides: dict[str, object]) -> str:
        parameters = {"profile": "laptop-quick", "wandb": "off", "overrides": overrides}
        given = [part for key, value in parameters.items() for part in ("-p", f"{key}={json.dumps(value)}")]
        command = machine.found(("prefect", "deployment", "run", "train/equalized-r2g", "--watch", *given))
        wide = {**machine.environment, "COLUMNS": "400"}
        return subprocess.run(command, env=wide, capture_output=True, text=True, timeout=600, check=False).stdout

    try:
        machine.server()
        machine.provision("train/equalized-r2g")
        machine.worker("one")
        said = watched(SMALL)
        assert re.search(r"rl-1: step 4 of 4, score \d\.\d", said), said
        assert "Flow run finished successfully in 'Completed'." in said
        said = watched({**SMALL, "model.path": str(tmp_path)})
        assert f"No model can be loaded from {tmp_path}" in said
        assert "Flow run finished in state 'Failed'" in said
    finally:
        machine.kill_everything()


@pytest.fixture
def postgres() -> Iterator[int]:
    """A cluster of its own on a free port of the loopback interface, with databases ``prefect`` and ``optuna``."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("Postgres is not installed (Debian: apt-get install postgresql)")
    programs = found[-1].parent
    # Postgres refuses to run as root; the package's own user then does it.
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="userrl-pg-"))
    if as_user:
        shutil.chown(folder, "postgres")
    port, data = free_port(), folder / "data"

    def run(program: str, *options: str) -> None:
        subprocess.run(
            [*as_user, str(programs / program), *options],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PGCTLTIMEOUT": "170"},
            timeout=180,
        )

    run("initdb", "-D", str(data), "-U", "userrl", "--auth=trust", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c max_connections=100"
    run("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-w", "-o", options, "start")
    try:
        for database in ("prefect", "optuna"):
            run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "userrl", database)
        yield port
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)


def test_two_worker_environments_on_postgres_run_every_trial_exactly_once(postgres: int, tmp_path: Path) -> None:
    at = f"userrl@127.0.0.1:{postgres}"
    machine = Machine(tmp_path / "home", PREFECT_SERVER_DATABASE_CONNECTION_URL=f"postgresql+asyncpg://{at}/prefect")
    storage = f"postgresql+psycopg://{at}/optuna"
    space = small_space(tmp_path)
    try:
        machine.server()
        machine.provision("sweep/gamma", "train/equalized-r2g")
        machine.worker("waits", "--work-queue", "sweeps")
        for name in ("ann", "bob"):
            own = tmp_path / name
            (own / "tmp").mkdir(parents=True)
            # All that two users would not share: home, Prefect's profile and cache, temporary files. Shared: $USERRL_HOME.
            environment = {"HOME": str(own), "PREFECT_HOME": str(own / "prefect"), "TMPDIR": str(own / "tmp")}
            machine.worker(name, "--work-queue", "default", "--limit", "1", environment=environment)

        sweep = machine.run("sweep/gamma", space=str(space), parallel=2, storage=storage, poll_seconds=0.5)
        wait_for(lambda: machine.state(sweep) in FINAL, 1200, "the end of the sweep")

        assert machine.state(sweep) == "COMPLETED", machine.said()
        loaded = load_space(space)
        study = open_study(loaded, tmp_path / "elsewhere", storage, queue=False)
        assert [t.state for t in study.trials] == [TrialState.COMPLETE] * 4
        assert sorted(t.params["gamma"] for t in study.trials) == [0.6, 0.7, 0.8, 0.9]
        runs = [run for run in machine.flow_runs() if "attempt" in (run["idempotency_key"] or "")]
        assert collections.Counter(run["state"]["type"] for run in runs) == {
            "COMPLETED": 5
        }  # four trials, one fresh seed
        assert len({run["idempotency_key"] for run in runs}) == 5
        ann, bob = (submitted((machine.logs / f"{name}.log").read_text()) for name in ("ann", "bob"))
        assert min(len(ann), len(bob)) >= 1
        assert not ann & bob
        assert ann | bob == {run["id"] for run in runs}
        assert not (machine.home / "sweeps" / "tiny" / "journal.log").exists()
    finally:
        machine.kill_everything()
