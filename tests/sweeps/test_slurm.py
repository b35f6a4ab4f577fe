"""The job script of a Prefect worker, run for real by a stand-in for SLURM's `sbatch` (docs/operations.md has the real one)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps.rig import REPOSITORY, Machine

SBATCH = Path(__file__).parent / "slurm"
JOB_SCRIPT = REPOSITORY / "deploy" / "slurm" / "worker.sbatch"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "home", slots="cpu-0")
    yield machine
    machine.kill_everything()


def submit(machine: Machine, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`sbatch --wait` in a project's folder whose .venv is the one of this test."""
    folder.mkdir(exist_ok=True)
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(Path(sys.executable).parent.parent)
    return subprocess.run(
        ["sbatch", "--wait", *options, str(JOB_SCRIPT)],
        cwd=folder,
        env={**machine.environment, "PATH": f"{SBATCH}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


@pytest.mark.slow
def test_the_worker_of_a_job_takes_one_run_and_the_job_ends_with_it(machine: Machine, tmp_path: Path) -> None:
    machine.server()
    machine.provision("distill/default")
    asked = {"recipe": "equalized-r2g", "profile": "laptop-quick", "overrides": {"demonstrations.episodes": 20}}
    first, second = (machine.run("distill/default", seed=seed, **asked) for seed in (1, 2))
    job = submit(machine, tmp_path / "project")
    log = (tmp_path / "project" / "slurm-7.log").read_text()
    assert (job.returncode, job.stdout) == (0, "Submitted batch job 7\n"), log + job.stderr
    assert sorted(machine.state(flow_run) for flow_run in (first, second)) == ["COMPLETED", "SCHEDULED"], log
    assert "Worker 'slurm-7' started!" in log
    assert "Worker 'slurm-7' stopped!" in log
    assert len(list(machine.home.glob("runs/*/stages/distill/result.json"))) == 1
    assert machine.trainers() == []


def test_a_misspelt_line_of_the_job_script_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "worker.sbatch"
    wrong.write_text(JOB_SCRIPT.read_text().replace("--ntasks", "--tasks"))
    done = subprocess.run([SBATCH / "sbatch", wrong], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "--tasks" in done.stderr) == (2, True)


def test_outside_of_a_job_the_script_says_how_it_is_submitted() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_")}
    done = subprocess.run(["bash", JOB_SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "Submit this file with sbatch" in done.stderr) == (1, True)


def test_the_signal_before_the_time_limit_reaches_the_worker_itself() -> None:
    text = JOB_SCRIPT.read_text()
    assert "#SBATCH --signal=B:TERM@120" in text  # to the batch shell, which the worker replaces
    assert text.rstrip().splitlines()[-2].startswith("exec prefect worker start ")
