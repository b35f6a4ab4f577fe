"""A sweep on a real server with two workers: everything killed half-way, started again, every configuration once."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial, TrialState

from sweeps.space import load_space
from sweeps.study import open_study
from tests.sweeps.rig import Machine, results, run_status, small_space, wait_for
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
GAMMAS = [0.6, 0.7, 0.8, 0.9]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "home")
    try:
        yield made
    finally:
        made.kill_everything()


def trials(machine: Machine, space: Path) -> list[FrozenTrial]:
    loaded = load_space(space)
    folder = machine.home / "sweeps" / loaded.name
    return open_study(loaded, folder, queue=False).trials if (folder / "space.json").exists() else []


def finished(machine: Machine, space: Path) -> list[FrozenTrial]:
    return [t for t in trials(machine, space) if t.state == TrialState.COMPLETE]


def begin(machine: Machine) -> None:
    machine.server()
    machine.provision("sweep/gamma", "train/equalized-r2g")
    machine.worker("one")
    machine.worker("two")


def completed(machine: Machine, flow_run: str) -> bool:
    state = machine.state(flow_run)
    assert state not in ("FAILED", "CRASHED", "CANCELLED"), machine.said()
    return state == "COMPLETED"


def test_a_sweep_killed_with_everything_repeats_no_finished_trial(machine: Machine, tmp_path: Path) -> None:
    space = small_space(tmp_path)
    parameters = {"space": str(space), "parallel": 2, "poll_seconds": 0.5}
    begin(machine)
    machine.run("sweep/gamma", **parameters)
    wait_for(lambda: finished(machine, space), what="a finished trial")
    machine.kill_everything()
    done = {t.user_attrs["run_id"] for t in finished(machine, space)}
    before = results(machine.home)
    assert 1 <= len(done) < 4

    begin(machine)
    again = machine.run("sweep/gamma", **parameters)
    wait_for(lambda: completed(machine, again), 900, "the end of the sweep")

    found = trials(machine, space)
    assert sorted(t.params["gamma"] for t in found if t.state == TrialState.COMPLETE) == GAMMAS
    assert len(found) == 4
    after = results(machine.home)
    assert {path: after[path] for path in before} == before  # no finished stage, of whatever trial, was done again
    assert done < {t.user_attrs["run_id"] for t in found}
    with open_warehouse(machine.home / "warehouse") as warehouse:
        rows = warehouse.sql("select number, state, value, run_id, params from trials order by number").fetchall()
    assert [(n, s, r) for n, s, _, r, _ in rows] == [(t.number, "complete", t.user_attrs["run_id"]) for t in found]
    labels = collections.Counter(run["idempotency_key"] for run in machine.flow_runs())
    attempts = {label: number for label, number in labels.items() if label and "attempt" in label}
    assert len(attempts) >= 5  # four trials, a fresh seed, and those that the kill cut off once more
    assert set(attempts.values()) == {1}


def test_a_cancelled_trial_stops_its_trainer_leaves_a_checkpoint_and_is_taken_up_again(
    machine: Machine, tmp_path: Path
) -> None:
    # No worker is so slow to see a cancel that it comes too late.
    long = {"stages": [{"steps": 4000, "horizon": 4, "mix": {"travel": 1}}], "evaluate.every": 2}
    space = small_space(tmp_path, parameters={"gamma": {"key": "credit.gamma", "options": [0.6]}})
    begin(machine)
    sweep = machine.run(
        "sweep/gamma", space=str(space), parallel=1, trials=1, overrides=long, poll_seconds=0.5, budget={"hours": 9}
    )
    checkpoints = machine.home / "runs"
    wait_for(lambda: list(checkpoints.glob("*/stages/rl-1/**/model.safetensors")), what="a checkpoint")
    (trainer,) = machine.trainers()

    machine.post(f"flow_runs/{sweep}/set_state", {"state": {"type": "CANCELLING"}})

    wait_for(lambda: machine.state(sweep) == "CANCELLED", 300, "the sweep's cancel")
    (trial,) = trials(machine, space)
    wait_for(lambda: machine.state(trial.user_attrs["handle"]) == "CANCELLED", 300, "the trial's cancel")
    wait_for(lambda: trainer not in machine.trainers(), 60, "the trainer's end")
    assert list(checkpoints.glob("*/stages/rl-1/**/model.safetensors"))
    run_id = trial.user_attrs["run_id"]
    wait_for(lambda: run_status(machine.home, run_id)["state"] == "stopped", 60, "the run's own word")
    assert trial.state == TrialState.RUNNING  # never told a value; the next start takes it up
