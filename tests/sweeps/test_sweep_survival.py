"""A sweep on a real server with two workers: everything killed half-way, started again, every configuration once."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial, TrialState

from sweeps.space import load_space
from sweeps.study import open_study
from tests.sweeps.rig import TINY, Machine, results, run_status, small_space
from tests.waits import wait_for
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
GAMMAS = [0.6, 0.7, 0.8]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A server and two workers."""
    made = Machine(tmp_path_factory.mktemp("survival") / "home")
    try:
        made.server()
        made.provision("sweep/gamma", "train/equalized-r2g")
        workers(made)
        yield made
    finally:
        made.kill_everything()


def trials(machine: Machine, space: Path) -> list[FrozenTrial]:
    loaded = load_space(space)
    folder = machine.home / "sweeps" / loaded.name
    return open_study(loaded, folder, queue=False).trials if (folder / "space.json").exists() else []


def finished(machine: Machine, space: Path) -> list[FrozenTrial]:
    return [t for t in trials(machine, space) if t.state == TrialState.COMPLETE]


def weights_of(machine: Machine, space: Path) -> list[Path]:
    """The weights that the sweep's trials have written."""
    runs = [str(t.user_attrs["run_id"]) for t in trials(machine, space) if "run_id" in t.user_attrs]
    return [path for run in runs for path in machine.home.glob(f"runs/{run}/stages/rl-1/**/model.safetensors")]


def workers(machine: Machine) -> None:
    machine.worker("one")
    machine.worker("two")


def completed(machine: Machine, flow_run: str) -> bool:
    state = machine.state(flow_run)
    assert state not in ("FAILED", "CRASHED", "CANCELLED"), machine.said()
    return state == "COMPLETED"


def test_a_sweep_killed_with_everything_repeats_no_finished_trial(machine: Machine, tmp_path: Path) -> None:
    space = small_space(
        tmp_path,
        overrides=TINY,
        parameters={"gamma": {"key": "credit.gamma", "options": GAMMAS}},
        budget={"trials": len(GAMMAS)},
    )
    parameters = {"space": str(space), "parallel": 2, "poll_seconds": 0.5}
    machine.run("sweep/gamma", **parameters)
    wait_for(lambda: finished(machine, space), what="a finished trial")
    machine.kill_everything()
    done = {t.user_attrs["run_id"] for t in finished(machine, space)}
    before = results(machine.home)
    assert 1 <= len(done) < 3

    machine.server()
    workers(machine)
    again = machine.run("sweep/gamma", **parameters)
    wait_for(lambda: completed(machine, again), 900, "the end of the sweep")

    found = trials(machine, space)
    assert sorted(t.params["gamma"] for t in found if t.state == TrialState.COMPLETE) == GAMMAS
    assert len(found) == 3
    after = results(machine.home)
    assert {path: after[path] for path in before} == before  # no finished stage, of whatever trial, was done again
    assert done < {t.user_attrs["run_id"] for t in found}
    with open_warehouse(machine.home / "warehouse") as warehouse:
        rows = warehouse.sql("select number, state, run_id from trials where study = 'tiny' order by number").fetchall()
    assert rows == [(t.number, "complete", t.user_attrs["run_id"]) for t in found]
    labels = collections.Counter(run["idempotency_key"] for run in machine.flow_runs())
    attempts = {label: number for label, number in labels.items() if label and "attempt" in label}
    assert len(attempts) >= 4  # three trials, a fresh seed, and those that the kill cut off once more
    assert set(attempts.values()) == {1}


def test_a_cancelled_trial_stops_its_trainer_leaves_a_checkpoint_and_is_taken_up_again(
    machine: Machine, tmp_path: Path
) -> None:
    # No worker is so slow to see a cancel that it comes too late.
    long = {"stages": [{"steps": 4000, "horizon": 4, "mix": {"travel": 1}}], "evaluate.every": 2}
    space = small_space(tmp_path, "long", parameters={"gamma": {"key": "credit.gamma", "options": [0.6]}})
    sweep = machine.run(
        "sweep/gamma", space=str(space), parallel=1, trials=1, overrides=long, poll_seconds=0.5, budget={"hours": 9}
    )
    wait_for(lambda: weights_of(machine, space), what="a checkpoint")
    (trainer,) = machine.trainers()

    machine.post(f"flow_runs/{sweep}/set_state", {"state": {"type": "CANCELLING"}})

    wait_for(lambda: machine.state(sweep) == "CANCELLED", 300, "the sweep's cancel")
    (trial,) = trials(machine, space)
    wait_for(lambda: machine.state(trial.user_attrs["handle"]) == "CANCELLED", 300, "the trial's cancel")
    wait_for(lambda: trainer not in machine.trainers(), 60, "the trainer's end")
    assert weights_of(machine, space)
    run_id = trial.user_attrs["run_id"]
    wait_for(lambda: run_status(machine.home, run_id)["state"] == "stopped", 60, "the run's own word")
    assert trial.state == TrialState.RUNNING  # never told a value; the next start takes it up
