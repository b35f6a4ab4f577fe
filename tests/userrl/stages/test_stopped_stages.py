"""A training stage that ends early, for real: the disk is full, the budget is spent, someone asks it to stop."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests import prepared
from tests.flows.small import OVERRIDES
from userrl.run.budget import seconds_spent
from userrl.run.job import Inputs
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.stages.execution import execute
from userrl_core.errors import TrainingError
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FULL_DISK = """
import errno, os

write, left = os.write, int(os.environ["DISK_LEFT"])

def limited(fd, data):
    global left
    if os.readlink(f"/proc/self/fd/{fd}").startswith(os.environ["FULL_DISK"]):
        left -= len(data)
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(fd, data)

os.write = limited
"""
"""A disk with DISK_LEFT bytes left in the folder FULL_DISK, for a process that finds this as its sitecustomize."""


def begin(home, monkeypatch, steps=12, stages=1, **parameters):
    """A run in a home of its own, and its plan."""
    monkeypatch.setenv("USERRL_HOME", str(home))
    monkeypatch.setenv("USERRL_THREADS", "1")
    each = {"steps": steps, "horizon": 4, "mix": {"travel": 1}}
    plan = plan_run(TrainRequest(overrides=OVERRIDES | {"stages": [each] * stages}, wandb="off", **parameters))
    with plan.begin() as run:
        pass
    run.set_status("running")
    return plan, run


@pytest.fixture(scope="module")
def learnt(_prepared_process, tmp_path_factory):
    """Demonstrations and a cold start; every test's run goes on from them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", prepared.Popen)
        plan, run = begin(tmp_path_factory.mktemp("learnt"), patch)
        shown = execute(plan.job(run, "distill"))
        cold = execute(plan.job(run, "sft", Inputs(distill=shown)))
    return Inputs(before=cold, distill=shown, reference=cold)


def ask(home, text):
    with open_warehouse(home / "warehouse") as warehouse:
        return warehouse.sql(text).fetchall()


def checkpoints(run):
    return sorted(path.name for path in (run.stage("rl-1") / "checkpoints").glob("step-*"))


def steps_told(run):
    return [json.loads(line)["step"] for line in (run.stage("rl-1") / "progress.jsonl").read_text().splitlines()]


class Enough(Exception):
    """The test has seen what it wanted; the child is stopped."""


def test_a_full_disk_under_the_log_stops_training_and_the_next_start_goes_on(learnt, tmp_path, monkeypatch):
    home = tmp_path / "home"
    plan, run = begin(home, monkeypatch)
    job = plan.job(run, "rl-1", learnt)
    (tmp_path / "sitecustomize.py").write_text(FULL_DISK)
    with monkeypatch.context() as full:
        full.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        full.setenv("FULL_DISK", str(home / "warehouse"))
        full.setenv("DISK_LEFT", "600000")
        with pytest.raises(
            TrainingError, match=r"^The turn log cannot write to .*: No space left on device\. Free space"
        ):
            execute(job)
    said = (run.stage("rl-1") / "output.txt").read_text()
    assert "Traceback" not in said
    assert said.count("error: ") == 1
    reached = steps_told(run)[-1]
    assert 2 <= reached < 12
    assert ask(home, f"select count(*) from trajectories where phase = 'train' and step <= {reached}") == [
        (reached * 12,)
    ]

    execute(job)

    assert steps_told(run)[-1] == 12
    assert 1 < steps_told(run)[reached] <= reached + 1  # neither from the beginning nor past what was lost
    per_step = "select count(*), sum(turns) from trajectories where phase = 'train' group by step"
    assert [row[0] for row in ask(home, per_step)] == [12] * 12
    turns = ask(home, "select count(*), count(distinct (traj_id, turn)) from turns where phase = 'train'")
    assert turns == [(sum(row[1] for row in ask(home, per_step)),) * 2]


def test_a_limit_on_the_size_of_files_is_one_sentence_too(tmp_path, monkeypatch):
    plan, run = begin(tmp_path, monkeypatch)
    job = plan.job(run, "distill")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
    try:
        with pytest.raises(TrainingError, match=r"^The turn log cannot write to .*: File too large\. Free space"):
            execute(job)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    logged = ask(tmp_path, "select count(*) from turns")[0][0]
    assert logged > 20
    result = execute(job)
    assert ask(tmp_path, "select count(*) from turns where phase = 'distill'") == [(result.turns,)]


@pytest.mark.usefixtures("prepared")
def test_a_stage_whose_hours_are_spent_leaves_a_checkpoint(learnt, tmp_path, monkeypatch):
    hours = 15 / 3600
    while True:
        plan, run = begin(tmp_path, monkeypatch, steps=4000, budget={"hours": hours})
        spent = f"The budget of {hours:g} hours is spent in stage rl-1. Raise it and run again"
        with pytest.raises(TrainingError, match=f"^{re.escape(spent)}"):
            execute(plan.job(run, "rl-1", learnt))
        if any(name > "step-000000" for name in checkpoints(run)):
            break
        hours *= 2  # a busy machine may need all of it to load, but none needs ten minutes
        assert hours < 0.2
    with pytest.raises(TrainingError, match="is spent in stage rl-1"):  # what it has used is not forgotten
        execute(plan.job(run, "rl-1", learnt))
    assert go_on(run, begin(tmp_path, monkeypatch, steps=4000)[0], learnt) > 1


@pytest.mark.usefixtures("prepared")
def test_runs_stop_ends_a_stage_that_is_training_and_leaves_a_checkpoint(learnt, tmp_path, monkeypatch):
    plan, run = begin(tmp_path, monkeypatch, steps=4000)
    asked = []

    def progress(line):
        if line["step"] >= 4 and not asked:
            command = [str(Path(sys.executable).with_name("userrl")), "runs", "stop", run.id]
            asked.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))

    with pytest.raises(TrainingError, match="was stopped by `userrl runs stop`"):
        execute(plan.job(run, "rl-1", learnt), progress=progress)
    assert asked[0].communicate()[0] == f"stopping {run.id}; its last checkpoint stays\n"
    assert (run.stage("rl-1") / "output.txt").read_text().startswith("stopped in rl-1; the next start continues")
    assert checkpoints(run)
    run.forget_stop()
    assert go_on(run, plan, learnt) > 1


def go_on(run, plan, learnt):
    """Start it once more; the first step it does."""
    first = []

    def progress(line):
        first.append(line["step"])
        raise Enough

    with pytest.raises(Enough):
        execute(plan.job(run, "rl-1", learnt), progress=progress)
    return first[0]


@pytest.mark.usefixtures("prepared")
def test_a_stage_begins_anew_if_the_stage_before_it_was_done_again_with_other_weights(learnt, tmp_path, monkeypatch):
    plan, run = begin(tmp_path / "elsewhere", monkeypatch, seed=1)
    cold = execute(plan.job(run, "sft", Inputs(distill=learnt.distill)))
    changed = Inputs(before=cold, distill=learnt.distill, reference=cold)
    plan, run = begin(tmp_path / "fresh", monkeypatch, steps=2, stages=2)
    expected = execute(plan.job(run, "rl-1", changed))
    plan, run = begin(tmp_path / "home", monkeypatch, steps=2, stages=2)
    earlier = execute(plan.job(run, "rl-1", learnt))
    execute(plan.job(run, "rl-2", learnt.model_copy(update={"before": earlier})))

    said = []
    again = execute(plan.job(run, "rl-1", changed), say=lambda line, *values: said.append(line % values))

    moved = run.folder / "earlier" / "rl-1.1"
    told = "rl-1: done again from its start, because a stage before it has another result now. Its earlier files are in"
    assert f"{told} {moved}" in said
    assert (moved / "checkpoints" / earlier.checkpoint.name / "model.safetensors").is_file()
    assert seconds_spent(run.folder) > max(earlier.seconds, again.seconds)
    assert earlier.sha256 != again.sha256 == expected.sha256
    played = "select stage, phase, step, task_id, attempt, score from trajectories order by all"
    assert ask(tmp_path / "home", played) == ask(tmp_path / "fresh", played)
    # Nothing of rl-2, which had begun from the earlier weights.
    assert ask(tmp_path / "home", "select distinct stage from metrics") == [("rl-1",)]
