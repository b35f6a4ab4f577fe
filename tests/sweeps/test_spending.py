"""A budget is a limit: trials, hours, GPU-hours and money stop a sweep, and what is kept back goes to fresh seeds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from sweeps.launcher import Status
from sweeps.objective import measure, money
from sweeps.results import winner
from sweeps.study import counted
from tests.sweeps.launching import WritingLauncher, make_space, make_sweep, peak_at_08, write_validation
from warehouse.write.turn_log import TurnLog

UNCONFIRMED = {"top": 1, "seeds": []}


def test_no_more_trials_start_than_the_budget_names_failed_ones_included(tmp_path: Path) -> None:
    class Failing(WritingLauncher):
        def status(self, handle: str) -> Status:
            return "failed"

    launcher = Failing(tmp_path / "warehouse", peak_at_08)
    space = make_space(sampler={"name": "random"}, budget={"trials": 3}, retries=0, confirm=UNCONFIRMED)
    sweep = make_sweep(space, tmp_path, launcher)
    sweep.run()
    assert [t.state for t in counted(sweep.study)] == [TrialState.FAIL] * 3
    assert len(launcher.started) == 3


def test_gpu_hours_of_all_trials_stop_the_sweep(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)  # three looks of half an hour each
    sweep = make_sweep(make_space(budget={"gpu_hours": 2.0}, confirm=UNCONFIRMED), tmp_path, launcher, parallel=1)
    sweep.run()
    assert [t.state.name for t in sweep.study.trials] == ["COMPLETE", "FAIL", "WAITING", "WAITING", "WAITING"]
    assert sweep.study.trials[1].user_attrs["stopped"] == "stopped by the budget: 2.000 of 2 GPU-hours"


def test_money_for_model_calls_stops_the_sweep(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08, price=1.0)
    sweep = make_sweep(make_space(budget={"money": 4.0}, confirm=UNCONFIRMED), tmp_path, launcher, parallel=1)
    sweep.run()
    assert sweep.study.trials[1].user_attrs["stopped"] == "stopped by the budget: 4.00 of 4 dollars for model calls"
    assert len(launcher.cancelled) == 1


def test_calls_that_a_restart_superseded_were_paid_for(tmp_path: Path) -> None:
    for start in (0, 1):
        with TurnLog.open(tmp_path, "r1") as log:
            if start:
                log.event("rewind", stage="rl-1", step=0, scope="stage")
            write_validation(log, 1, 0.5, price=2.0)
    assert money(tmp_path, ["r1"]) == 4.0
    assert (measure(tmp_path, "r1", "cost").value, measure(tmp_path, "r1", "cost").n) == (4.0, 4)


def test_a_money_budget_of_nothing_stops_at_the_first_priced_call_and_lets_free_ones_pass(tmp_path: Path) -> None:
    space = make_space(budget={"money": 0}, confirm=UNCONFIRMED)
    free = make_sweep(space, tmp_path / "free", WritingLauncher(tmp_path / "free" / "warehouse", peak_at_08))
    free.run()
    assert len(counted(free.study)) == 4
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08, price=0.01)
    priced = make_sweep(space, tmp_path, launcher, parallel=1)
    priced.run()
    assert (len(launcher.started), len(counted(priced.study))) == (1, 0)


def test_a_share_is_kept_back_for_the_fresh_seeds(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    space = make_space(budget={"gpu_hours": 6.5}, confirm={"top": 1, "seeds": [101, 102], "reserve": 0.5})
    sweep = make_sweep(space, tmp_path, launcher, parallel=1)
    sweep.run()
    assert [seed for _, seed in launcher.started] == [1, 1, 1, 101, 102]
    assert len(winner(space, sweep.study).fresh) == 2


def test_a_confirmation_is_cut_off_when_everything_is_spent(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    said: list[str] = []
    space = make_space(budget={"gpu_hours": 6.5})
    sweep = make_sweep(space, tmp_path, launcher, parallel=1, say=said.append)
    sweep.run()
    assert said[-1] == "Budget spent: 6.500 of 6.5 GPU-hours. The best is not confirmed on every fresh seed."
    assert launcher.cancelled[-1] == launcher.started[-1][0]


def test_a_larger_budget_goes_on_with_what_the_smaller_one_cut_off(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", peak_at_08)
    small = make_sweep(make_space(budget={"gpu_hours": 2.0}, confirm=UNCONFIRMED), tmp_path, launcher, parallel=1)
    small.run()
    larger = make_sweep(make_space(budget={"gpu_hours": 20.0}, confirm=UNCONFIRMED), tmp_path, launcher, parallel=1)
    larger.run()
    done = [t.params["gamma"] for t in larger.study.trials if t.state == TrialState.COMPLETE]
    assert sorted(done) == [0.6, 0.7, 0.8, 0.9]


def test_hours_count_while_a_driver_works_and_not_in_between(tmp_path: Path) -> None:
    launcher = WritingLauncher(tmp_path / "warehouse", lambda overrides: 0.5, steps=10**6)
    clock = Clock(step=600.0)
    space = make_space(budget={"trials": 1, "hours": 2.0}, confirm=UNCONFIRMED)

    def once_interrupted(_: float) -> None:
        if clock.now > 3600.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_sweep(space, tmp_path, launcher, now=clock, sleep=once_interrupted).run()
    clock.now += 1e6  # a week of nothing
    sweep = make_sweep(space, tmp_path, launcher, now=clock)
    before = sweep.study.user_attrs["hours"]
    sweep.run()
    assert 1.0 <= before < 2.0 <= sweep.study.user_attrs["hours"] < 2.5


def test_hours_follow_a_clock_that_a_suspension_or_a_step_of_the_time_of_day_does_not_move(tmp_path: Path) -> None:
    began = time.time()
    sweep = make_sweep(make_space(confirm=UNCONFIRMED), tmp_path, WritingLauncher(tmp_path / "warehouse", peak_at_08))
    sweep.run()
    assert began <= sweep.study.user_attrs["began"] <= time.time()
    before = time.monotonic()
    assert before <= sweep.now() <= time.monotonic()


class Clock:
    """Each look moves it on."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_gpu_hours_count_killed_starts_the_running_stage_and_every_gpu(tmp_path: Path, monkeypatch: Any) -> None:
    import json

    from userrl.trials.processes import ProcessLauncher

    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    run = tmp_path / "runs" / "r"
    write_run(run, gpus=2)
    lines: list[Mapping[str, float]] = [{"seconds": 100.0}, {"seconds": 900.0}, {"seconds": 50.0}, {"seconds": 400.0}]
    stages = {"rl-1": 2400.0, "rl-2": None}
    for stage, seconds in stages.items():
        folder = run / "stages" / stage
        folder.mkdir(parents=True)
        torn = '{"seconds": 12'
        (folder / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
        if seconds is not None:
            (folder / "result.json").write_text(json.dumps({"key": "k", "value": {"seconds": seconds}}))
    # rl-1: 900 s of a killed start, then the one whose result says 2400 s; rl-2: 900 + 400 so far; on two GPUs.
    assert ProcessLauncher(make_space()).gpu_hours("r") == pytest.approx(2 * (900 + 2400 + 900 + 400) / 3600)


def write_run(folder: Path, gpus: int) -> None:
    import json

    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps({"id": "r", "created": 1.0, "resolved": {"name": "x", "hardware": {"gpus": gpus}}})
    )
