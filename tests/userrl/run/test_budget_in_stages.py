"""A budget is kept while a stage runs: hours of earlier starts count, money is read from the warehouse."""

import json

import pytest
from prefect.logging import disable_run_logger

from flows.distill import distill
from tests.makers import raises
from tests.userrl.run.test_runs_and_jobs import make_job
from userrl.run.budget import BudgetGuard, check_budget, money_spent, seconds_spent
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.run.results import Result, TrainResult
from userrl.run.run import load
from userrl_core.records import ModelCall, RolloutContext, Task, Trajectory, Turn
from userrl_core.training.jobs import begun_marker
from warehouse import TurnLog


def job_with(tmp_path, **budget):
    folder = tmp_path / "runs" / "r" / "stages" / "rl-1"
    folder.mkdir(parents=True, exist_ok=True)
    return make_job(tmp_path, folder=folder, options={"budget": budget})


def write_progress(job, *seconds):
    with job.progress_file.open("a") as file:
        file.writelines(json.dumps({"step": 1, "total": 9, "seconds": s}) + "\n" for s in seconds)


def spend(root, price):
    log = TurnLog.open(root, "r")
    task = Task("travel", "t", "train", {})
    trajectory = Trajectory(task, 0, 4, 0, context=RolloutContext("distill", phase="distill"))
    call = ModelCall("user", "gpt-4o", 10, 10, price=price)
    turn = Turn(1, "action", "?", "", "?", "!", 0.0, model_calls=[call])
    log.begin(trajectory)
    log.turn(trajectory, turn)
    trajectory.turns.append(turn)
    log.end(trajectory)
    return log


def test_hours_of_every_start_of_a_stage_count(tmp_path):
    job = job_with(tmp_path)
    write_progress(job, 10.0, 50.0, 5.0, 30.0)
    begun_marker(job.folder).touch()
    folder = job.run_folder
    assert seconds_spent(folder) == 80.0
    job.finish(Result(seconds=34.0))
    assert seconds_spent(folder) == 84.0


def test_a_stage_is_stopped_in_the_middle_when_the_hours_are_spent(tmp_path):
    job = job_with(tmp_path, hours=1.0)
    write_progress(job, 3590.0)
    BudgetGuard(job)()
    write_progress(job, 11.0)
    with raises("budget.spent"):
        BudgetGuard(job)()
    with raises("budget.spent"):
        check_budget(job.model_copy(update={"stage": "rl-2"}))


def test_a_stage_is_stopped_in_the_middle_when_the_money_is_spent(tmp_path):
    job = job_with(tmp_path, money=0.5)
    guard = BudgetGuard(job, money_every=0.0)
    guard()  # there is no warehouse yet
    log = spend(job.warehouse, 0.3)
    guard()
    log.event("rewind", stage="distill")
    log.close()
    spend(job.warehouse, 0.25).close()  # what the rewind voided is paid all the same
    assert money_spent("r", job.warehouse) == pytest.approx(0.55)
    with raises("budget.spent", "0.5", "0.55"):
        guard()


def test_demonstrations_have_the_budget_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    run_id = plan_run(TrainRequest(profile="laptop", backend="local", name="distill"), only="distill").run_id
    progress = tmp_path / "runs" / run_id / "stages" / "distill" / "progress.jsonl"
    progress.parent.mkdir(parents=True)
    progress.write_text('{"step": 50, "total": 60, "seconds": 1800.0}\n')
    with disable_run_logger(), raises("budget.spent", "0.5 hours is spent before stage distill"):
        distill.fn(profile="laptop", budget={"hours": 0.5, "money": 3})
    assert load(tmp_path / "runs" / run_id).status.state == "stopped"


def test_a_stage_that_has_just_finished_is_not_thrown_away(tmp_path):
    job = job_with(tmp_path, hours=0.001)
    write_progress(job, 100.0)
    job.finish(TrainResult(checkpoint=tmp_path))
    BudgetGuard(job)()


def test_without_a_budget_nothing_is_read(tmp_path):
    job = job_with(tmp_path)
    job.warehouse.write_text("no folder")
    BudgetGuard(job)()
