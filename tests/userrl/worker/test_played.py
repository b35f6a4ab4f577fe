"""What a stage that plays conversations takes from its earlier starts, and what it voids."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import curricula
from tests.warehouse.makers import play
from userrl.run.job import Actor, Inputs, StageJob
from userrl.run.results import TrainResult
from userrl.worker.main import _void_earlier_start
from userrl.worker.played import begin
from warehouse import TurnLog, open_warehouse


def job_of(home: Path, sha256: str, *, kind: Literal["distill", "evaluate"] = "evaluate") -> StageJob:
    job = StageJob(
        kind=kind,
        stage=kind,
        run_id="r1",
        folder=home / "runs" / "r1" / "stages" / kind,
        warehouse=home / "warehouse",
        recipe=curricula.load("equalized-r2g", "laptop-quick"),
        actors=(Actor(label="RL", kind="checkpoint", path="c1", id="c1", sha256=sha256),),
    )
    job.folder.mkdir(parents=True, exist_ok=True)
    return job


def played_by(job: StageJob, tasks: list[str]) -> tuple[list[str], list[tuple[str, int]]]:
    """Start an evaluation and play tasks. Return the tasks that it took from earlier starts, and the counts that a reader sees."""
    with TurnLog.open(job.warehouse, job.run_id) as log:
        log.stage(job.stage, "started")
        earlier = begin(job, log)
        for task in tasks:
            play(log, [1.0], task=task, stage="evaluate", phase="evaluate", policy="SFT")
    with open_warehouse(job.warehouse) as warehouse:
        scores = warehouse.sql("SELECT policy, n::INT FROM gym_scores()").fetchall()
    return sorted(conversation.task for conversation in earlier), scores


def test_an_evaluation_of_other_weights_voids_the_one_before_and_continues_its_own(tmp_path: Path) -> None:
    first, second = job_of(tmp_path, "a"), job_of(tmp_path, "b")
    assert played_by(first, ["t1"]) == ([], [("SFT", 1)])
    assert played_by(first, ["t2"]) == (["travel/t1"], [("SFT", 2)])
    assert played_by(second, ["t1"]) == ([], [("SFT", 1)])
    assert played_by(second, ["t2"]) == (["travel/t1"], [("SFT", 2)])
    assert played_by(first, ["t1", "t2", "t3"]) == ([], [("SFT", 3)])


def test_an_evaluation_of_a_version_that_did_not_log_its_job_starts_over(tmp_path: Path) -> None:
    job = job_of(tmp_path, "a")
    with TurnLog.open(job.warehouse, job.run_id) as log:
        play(log, [1.0], task="t1", stage="evaluate", phase="evaluate", policy="SFT")
    assert played_by(job, ["t1"]) == ([], [("SFT", 1)])


def test_an_exploration_that_is_played_again_voids_the_earlier_one(tmp_path: Path) -> None:
    model = Inputs(before=TrainResult(checkpoint=tmp_path))
    for _ in range(2):
        job = job_of(tmp_path, "a", kind="distill").model_copy(update={"inputs": model})
        with TurnLog.open(job.warehouse, job.run_id) as log:
            _void_earlier_start(job, log)
            play(log, [1.0], stage="distill", phase="distill", step=0)
    with open_warehouse(job.warehouse) as warehouse:
        assert warehouse.sql("SELECT count(*) FROM trajectories").fetchall() == [(1,)]
