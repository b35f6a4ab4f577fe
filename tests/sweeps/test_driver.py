"""The sweep driver against a launcher whose runs write a real warehouse: resume, retry, repeats, pruning, budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from sweeps.driver import Sweep
from sweeps.launcher import Started, Status
from sweeps.report import importance, pictures, table, winner
from sweeps.space import Space
from sweeps.study import counted, open_study
from userrl_core.records import Task, Trajectory, Turn, Where
from userrl_core.seeding import content_hash
from warehouse.log import TurnLog


class Interrupted(BaseException):
    """Stands for kill -9 of the driver: nothing after it runs, not even cleaning up of trials."""


class WritingLauncher:
    """Runs whose validations are a formula of their gamma, written to the warehouse one step a poll."""

    def __init__(self, warehouse: Path, value: Callable[[float], float], *, steps: int = 3) -> None:
        self.warehouse, self.value, self.steps = warehouse, value, steps
        self.started: list[tuple[str, int]] = []
        self.progress: dict[str, int] = {}
        self.cancelled: list[str] = []
        self.fail_first: set[str] = set()
        self.die_after: int | None = None
        self.overrides: dict[str, float] = {}

    def start(self, overrides: Mapping[str, Any], *, seed: int, label: str) -> Started:
        if self.die_after is not None and len(self.started) >= self.die_after:
            raise Interrupted
        run_id = content_hash([dict(overrides), seed])
        self.started.append((run_id, seed))
        self.progress.setdefault(run_id, 0)
        self.overrides[run_id] = float(overrides["credit.gamma"])
        return Started(handle=run_id, run_id=run_id)

    def status(self, handle: str) -> Status:
        if handle not in self.progress:
            return "failed"
        if handle in self.fail_first:
            self.fail_first.discard(handle)
            return "failed"
        if self.progress[handle] >= self.steps:
            return "completed"
        self.progress[handle] += 1
        write_validation(self.warehouse, handle, self.progress[handle], self.value(self.overrides[handle]))
        return "completed" if self.progress[handle] >= self.steps else "running"

    def cancel(self, handle: str) -> None:
        self.cancelled.append(handle)

    def gpu_hours(self, run_id: str) -> float:
        return 0.5


def write_validation(root: Path, run_id: str, step: int, score: float) -> None:
    log = TurnLog.open(root, run_id)
    for attempt in range(2):
        task = Task("function", f"t{attempt}", "validation", {})
        where = Where("rl-1", step, "validate", "local")
        trajectory = Trajectory(task, attempt, horizon=4, seed=0, where=where, group="g")
        trajectory.traj_id = log.begin(trajectory)
        turn = Turn(1, "answer", "1", "", "m", "o", score)
        trajectory.turns.append(turn)
        log.turn(trajectory, turn)
        trajectory.stop_reason, trajectory.score = "success", score
        log.end(trajectory)
    log.close()


def make_space(**fields: Any) -> Space:
    base: dict[str, Any] = {
        "name": "gammas",
        "source": "ours",
        "recipe": "equalized-r2g",
        "parameters": {"gamma": {"key": "credit.gamma", "options": [0.6, 0.7, 0.8, 0.9]}},
        "sampler": {"name": "grid"},
        "budget": {"trials": 4},
        "pruning": {"enabled": False},
        "confirm": {"top": 1, "seeds": [101, 102]},
    }
    return Space.model_validate({**base, **fields})


def make_sweep(space: Space, root: Path, launcher: WritingLauncher, **fields: Any) -> Sweep:
    study = open_study(space, root / "sweeps" / space.name)
    options: dict[str, Any] = {"parallel": 2, "sleep": lambda _: None, "say": lambda _: None, **fields}
    return Sweep(space, study, launcher, root / "warehouse", **options)


def peak_at_08(gamma: float) -> float:
    return 1.0 - abs(gamma - 0.8)


def test_a_grid_sweep_runs_every_configuration_once_and_confirms_the_best_on_fresh_seeds(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    sweep = make_sweep(make_space(), tmp_path, launcher)
    sweep.run()
    assert sorted(t.params["gamma"] for t in counted(sweep.study)) == [0.6, 0.7, 0.8, 0.9]
    assert len({run for run, seed in launcher.started if seed == 1}) == 4
    best = winner(sweep.space, sweep.study)
    assert best.overrides == {"credit.gamma": 0.8}
    assert best.fresh == [1.0, 1.0]
    assert "2 fresh seeds" in best.claim


def test_a_sweep_killed_half_way_repeats_no_finished_trial_when_it_is_run_again(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    launcher.die_after = 3
    with pytest.raises(Interrupted):
        make_sweep(make_space(), tmp_path, launcher).run()
    launcher.die_after = None
    again = make_sweep(make_space(), tmp_path, launcher)
    finished = {t.user_attrs["run_id"] for t in again.study.trials if t.state == TrialState.COMPLETE}
    before = len(launcher.started)
    again.run()
    restarted = [run for run, seed in launcher.started[before:] if seed == 1]
    assert not finished & set(restarted)
    assert sorted(t.params["gamma"] for t in counted(again.study)) == [0.6, 0.7, 0.8, 0.9]


def test_a_failed_run_is_started_again_and_told_its_value_once(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    launcher.fail_first = {content_hash([{"credit.gamma": 0.7}, 1])}
    sweep = make_sweep(make_space(), tmp_path, launcher)
    sweep.run()
    trial = next(t for t in sweep.study.trials if t.params["gamma"] == 0.7)
    assert (trial.state, trial.user_attrs["attempts"]) == (TrialState.COMPLETE, 2)


def test_a_run_that_always_fails_is_marked_failed_and_has_no_score(tmp_path: Path) -> None:
    class Failing(WritingLauncher):
        def status(self, handle: str) -> Status:
            return "failed"

    launcher = Failing(tmp_path / "warehouse", peak_at_08)
    space = make_space(parameters={"gamma": {"key": "credit.gamma", "options": [0.6]}}, retries=2)
    sweep = make_sweep(space, tmp_path, launcher)
    sweep.run()
    trial = sweep.study.trials[0]
    assert (trial.state, trial.values, trial.user_attrs["attempts"]) == (TrialState.FAIL, None, 3)


def test_identical_configurations_are_not_run_twice(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    space = make_space(
        parameters={"gamma": {"key": "credit.gamma", "options": [0.6, 0.8]}},
        sampler={"name": "random"},
        budget={"trials": 6},
        confirm={"top": 1, "seeds": []},
    )
    sweep = make_sweep(space, tmp_path, launcher, parallel=1)
    sweep.run()
    assert len(launcher.started) == 2
    assert len(counted(sweep.study)) == 2


def test_a_trial_that_lags_at_the_same_point_is_cancelled_and_pruned(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", lambda gamma: gamma, steps=4)
    space = make_space(
        parameters={"gamma": {"key": "credit.gamma", "options": [0.9, 0.8, 0.1]}},
        pruning={"min_trials": 2, "percentile": 50},
        confirm={"top": 1, "seeds": []},
    )
    sweep = make_sweep(space, tmp_path, launcher, parallel=1)
    sweep.run()
    trial = next(t for t in sweep.study.trials if t.params["gamma"] == 0.1)
    assert trial.state == TrialState.PRUNED
    assert "horizon 4, step 1" in trial.user_attrs["pruned"]
    assert launcher.cancelled == [trial.user_attrs["handle"]]


def test_a_spent_budget_cancels_what_runs_and_tells_it_no_value(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08, steps=50)
    clock = iter([0.0, 0.0] + [3600.0 * i for i in range(1, 200)])
    space = make_space(budget={"trials": 4, "hours": 2.0}, confirm={"top": 1, "seeds": []})
    sweep = make_sweep(space, tmp_path, launcher, now=lambda: next(clock))
    sweep.run()
    stopped = [t for t in sweep.study.trials if "stopped" in t.user_attrs]
    assert len(stopped) == 2
    assert all(t.values is None and "2 hours" in t.user_attrs["stopped"] for t in stopped)
    assert len(launcher.cancelled) == 2


def test_importance_names_the_parameter_that_mattered_and_the_pictures_are_pngs(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    space = make_space(
        parameters={
            "gamma": {"key": "credit.gamma", "options": [0.6, 0.8]},
            "k": {"key": "credit.k", "options": [1.0, 2.0]},
        },
        confirm={"top": 1, "seeds": []},
    )
    sweep = make_sweep(space, tmp_path, launcher)
    sweep.run()
    shares = importance(sweep.study)
    assert shares["gamma"] > 0.9
    drawn = pictures(sweep.study, tmp_path / "pictures")
    assert {p.stem for p in drawn} == {"parallel", "slice", "importance"}
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in drawn)
    assert [row["state"] for row in table(sweep.study)] == ["complete"] * 4
