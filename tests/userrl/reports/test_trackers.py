"""The records of a stage in TensorBoard and MLflow, read back with their own readers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from curricula import load
from tests.makers import raises
from tests.warehouse.makers import play
from userrl.run.job import StageJob, StageOptions
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.worker.sinks import open_sink
from userrl_core.records import CheckpointRecord
from warehouse import open_warehouse


def make_job(home: Path, **options: object) -> StageJob:
    return StageJob(
        kind="rl",
        stage="rl-1",
        run_id="r1",
        folder=home / "runs/r1/stages/rl-1",
        warehouse=home / "warehouse",
        recipe=load("equalized-r2g", profile="laptop-quick"),
        seed=3,
        options=StageOptions.model_validate({"wandb": "off", **options}),
    )


def write(job: StageJob, steps: range) -> None:
    sink = open_sink(job)
    if steps[0] > 1:
        sink.checkpoint(CheckpointRecord("c3", "/checkpoints/step-3", "rl-1", steps[0] - 1, "abc", score=0.5))
    for step in steps:
        play(sink, [1.0], step=step)
        sink.metrics({"reward/all/mean": step / 10, "pass@k": 1.0}, stage="rl-1", step=step)
    sink.checkpoint(CheckpointRecord("c5", "/checkpoints/step-5", "rl-1", steps[-1], "abc", score=0.75))
    sink.close()


def test_tensorboard_reads_the_same_numbers_and_a_resumed_stage_hides_what_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    job = make_job(tmp_path, track=("tensorboard",))
    write(job, range(1, 6))
    write(job, range(4, 7))  # killed after step 5, and continued from the checkpoint of step 3
    read = accumulators.EventAccumulator(str(tmp_path / "tensorboard" / "r1" / "rl-1"))
    read.Reload()
    shown = [(event.step, round(event.value, 4)) for event in read.Scalars("reward/all/mean")]
    assert shown == [(step, step / 10) for step in range(1, 7)]
    assert [event.value for event in read.Scalars("checkpoint/validation")][-1:] == [0.75]
    (recipe, *_) = read.Tensors("recipe/text_summary")
    assert b"shaping: equalized" in recipe.tensor_proto.string_val[0]
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        logged = warehouse.sql("select distinct step, value from metrics where name = 'reward/all/mean' order by step")
        assert [(step, round(value, 4)) for step, value in logged.fetchall()] == shown


def test_mlflow_reads_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # set by the sink too; here so that it is removed afterwards
    write(make_job(tmp_path, track=("mlflow",)), range(1, 6))
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("userrl").experiment_id])
    assert (run.info.run_name, run.info.status) == ("r1/rl-1", "FINISHED")
    assert run.data.tags["userrl.run"] == "r1"
    assert (run.data.params["credit.shaping"], run.data.params["seed"]) == ("equalized", "3")
    history = client.get_metric_history(run.info.run_id, "reward/all/mean")
    assert [(metric.step, metric.value) for metric in history] == [(step, step / 10) for step in range(1, 6)]
    assert run.data.metrics["pass_k"] == 1.0
    assert run.data.metrics["checkpoint/validation"] == 0.75


def test_a_tracker_that_is_not_installed_is_refused_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "userrl.run.plan.find_spec", lambda name: None if name == "mlflow" else importlib.util.find_spec(name)
    )
    asked = TrainRequest(profile="laptop-quick", track=("mlflow",))
    with raises("install.missing", "pip install -c constraints.txt -e '.[mlflow]'"):
        plan_run(asked)
    assert plan_run(asked.model_copy(update={"dry_run": True, "track": ("mlflow",)})).run_id


def test_a_tracker_changes_no_run_and_no_stage(tmp_path: Path) -> None:
    asked = TrainRequest(profile="laptop-quick", dry_run=True)
    assert plan_run(asked).run_id == plan_run(asked.model_copy(update={"track": ("tensorboard",)})).run_id
    assert make_job(tmp_path).key == make_job(tmp_path, track=("tensorboard",)).key
