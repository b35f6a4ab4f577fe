"""What a training process does with tasks and demonstrations."""

import json

import pytest
from prefect.utilities.collections import visit_collection

from curricula import load
from tests.flows.small import OVERRIDES
from tests.makers import raises
from tests.published import published
from userrl.run.job import Inputs, ProgressWriter, StageJob
from userrl.run.results import TrainResult
from userrl.run.tasks import check_own_file, rl_tasks, sample, tasks_of, validation_tasks
from userrl.worker.curriculum import RecipeCurriculum
from userrl.worker.distill import distill
from userrl.worker.train import curriculum, rl_job
from userrl_core.episode import EpisodeRules
from userrl_core.errors import UserRLError
from userrl_core.gyms import generate, make
from userrl_core.gyms.taskfile import write_tasks
from userrl_core.records import RolloutContext, Task
from userrl_core.rollout import build_episode
from userrl_core.training.jobs import RlJob
from warehouse import TurnLog, open_warehouse


def recipe(**overrides):
    return load("equalized-r2g", profile="laptop", overrides=OVERRIDES | overrides)


@pytest.fixture
def distilled(tmp_path):
    settings = recipe()
    job = StageJob(
        kind="distill",
        stage="distill",
        run_id="r",
        folder=tmp_path / "distill",
        warehouse=tmp_path / "warehouse",
        recipe=settings,
    )
    sink = TurnLog.open(job.warehouse, job.run_id)
    result = distill(job, sink, ProgressWriter(job.progress_file))
    sink.close()
    return job, settings, result


def test_a_job_is_no_mapping_to_prefect(distilled):
    job, *_ = distilled
    assert visit_collection(job, lambda value: value, return_data=True) == job
    assert dict(job)["kind"] == "distill"


def test_every_demonstrated_turn_is_in_the_warehouse(distilled):
    job, _, result = distilled
    with open_warehouse(job.warehouse) as warehouse:
        assert warehouse.sql("select count(*) from turns where phase = 'distill'").fetchall() == [(result.turns,)]
        assert warehouse.sql("select count(*) from trajectories").fetchall() == [(result.played,)]


def test_the_count_of_what_was_dropped_adds_up(distilled):
    _, settings, result = distilled
    assert result.kept == settings.demonstrations.top_k == 80
    assert result.kept + sum(result.dropped.values()) == result.played == 120
    assert result.mean_kept > result.mean
    assert result.policy == "scripted(skill=0.5)"


def test_demonstrated_tasks_leave_the_rl_set(distilled):
    _, settings, result = distilled
    used = set(json.loads(result.used_tasks.read_text())["tasks"])
    left = {task.key for task in rl_tasks(settings, "travel", used)}
    assert used
    assert not used & left
    assert left | used == {task.key for task in tasks_of(settings, "travel", "train")}


def test_demonstrations_leave_half_of_a_small_gym(tmp_path):
    from userrl.worker.distill import _attempts

    tasks, n = _attempts(recipe(**{"demonstrations.episodes": 100_000}), "travel", seed=0)
    every = tasks_of(recipe(), "travel", "train")
    assert len(tasks) <= len(every) // 2
    assert len(tasks) * n >= 100_000 - len(tasks)


def test_a_gym_without_tasks_left_is_refused_with_advice():
    settings = recipe()
    every = {task.key for task in tasks_of(settings, "travel", "train")}
    with raises("task.none_left", "demonstrations.episodes"):
        rl_tasks(settings, "travel", every)


def test_a_curriculum_resumes_with_the_same_tasks():
    settings = recipe()
    whole = RecipeCurriculum(settings, (), seed=3)
    drawn = [[task.key for task in whole.draw(step, 3)] for step in range(1, 11)]
    first = RecipeCurriculum(settings, (), seed=3)
    for step in range(1, 7):
        first.draw(step, 3)
        first.record(step, {"rollout/success/mean": 0.5})
    second = RecipeCurriculum(settings, (), seed=3)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [[task.key for task in second.draw(step, 3)] for step in range(7, 11)] == drawn[6:]
    assert [second.stage_of(step) for step in (4, 5, 10)] == ["rl-1", "rl-2", "rl-2"]
    assert [second.horizon(step, ()) for step in (4, 5)] == [4, 5]


def test_a_sample_does_not_depend_on_the_order_of_the_tasks():
    tasks = tasks_of(recipe(), "travel", "test")
    assert {t.key for t in sample(tasks, 10, "x")} == {t.key for t in sample(tasks[::-1], 10, "x")}
    assert {t.key for t in sample(tasks, 10, "x")} != {t.key for t in sample(tasks, 10, "y")}


def test_published_tasks_keep_their_split_and_validation_is_taken_from_train():
    settings = recipe(**{"gyms.function": {"published": str(published("userrl"))}})
    splits = {
        split: {t.key for t in tasks_of(settings, "function", split)} for split in ("train", "validation", "test")
    }
    assert sum(len(keys) for keys in splits.values()) == 538
    assert 0 < len(splits["validation"]) < 0.1 * len(splits["train"])
    assert not splits["train"] & splits["validation"]


def test_a_recipe_takes_tasks_from_a_file_and_what_was_imported(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    with raises("task.none_imported", "--from", "FOLDER", "--gym"):
        tasks_of(recipe(**{"gyms.travel": {"published": "imported"}}), "travel", "train")
    made = generate("travel", 40, 3)
    for source, file in [
        ("imported", tmp_path / "home" / "tasks" / "travel" / "published.jsonl"),
        (str(tmp_path / "mine.jsonl"), tmp_path / "mine.jsonl"),
    ]:
        write_tasks(file, made)
        settings = recipe(**{"gyms.travel": {"published": source}})
        found = [t for split in {t.split for t in made} for t in tasks_of(settings, "travel", split)]
        assert {t.id for t in found} <= {t.id for t in made}
        assert {t.split for t in made} - {t.split for t in found} == set()
    with raises("task.wrong_gym"):
        tasks_of(recipe(**{"gyms.math": {"published": str(tmp_path / "mine.jsonl")}}), "math", "train")


@pytest.mark.parametrize(
    ("gym", "lines", "fact"),
    [
        ("function", [], "contains no task"),
        ("function", [("a", {"foo": 1})], "cannot read the payload of task a (it has no 'rule')"),
        ("travel", [("a", {"aspects": 3})], "cannot read the payload of task a"),
        ("function", [("a", None), ("a", None)], "contains train task a 2 times"),
    ],
)
def test_a_file_of_tasks_that_a_gym_cannot_play_is_refused_before_a_run(tmp_path, gym, lines, fact):
    payload = generate(gym, 1, 3)[0].payload
    write_tasks(tmp_path / "own.jsonl", [Task(gym, id, "train", payload if own is None else own) for id, own in lines])
    with pytest.raises(UserRLError) as caught:
        check_own_file(gym, str(tmp_path / "own.jsonl"), {})
    assert fact in str(caught.value)


def test_a_payload_without_what_the_opening_needs_is_a_sentence():
    with raises("task.invalid_field", "Task math/a cannot be opened: there is no 'question'"):
        make("math", Task("math", "a", "train", {"foo": 1})).reset()


def test_validation_tasks_are_validation_tasks():
    assert {task.split for task in validation_tasks(recipe())} == {"validation"}
    assert len(validation_tasks(recipe())) == 8


def test_in_an_evaluation_the_attempts_of_two_actors_are_no_group():
    task = validation_tasks(recipe())[0]

    def group(**where):
        return build_episode(
            task, 0, EpisodeRules(4), context=RolloutContext(stage="evaluate", **where)
        ).trajectory.group

    script, cold = group(phase="evaluate", policy="script"), group(phase="evaluate", policy="SFT", checkpoint="abc")
    assert script == f"evaluate/0/script/{task.key}"
    assert cold == f"evaluate/0/SFT/abc/{task.key}"
    assert group(phase="train", policy="SFT", step=3) == f"evaluate/3/{task.key}"


def test_after_a_stage_in_seconds_the_next_one_begins_where_it_ended(tmp_path):
    mix = {"travel": 1}
    settings = recipe(
        stages=[{"cpu_seconds": 5, "horizon": 4, "mix": mix}, {"steps": 3, "horizon": 5, "mix": mix}],
    )
    before = TrainResult(checkpoint=tmp_path, sha256="a", step=7)
    job = StageJob(
        kind="rl", stage="rl-2", run_id="r", folder=tmp_path, warehouse=tmp_path, recipe=settings,
        inputs=Inputs(before=before),
    )  # fmt: skip
    made = rl_job(RlJob, job)
    assert (made.first_step, made.last_step, made.seconds) == (8, 10, None)
    steps = curriculum(job)
    assert [(steps.stage_of(step), steps.horizon(step, ())) for step in (8, 10)] == [("rl-2", 5)] * 2
    first = job.model_copy(
        update={"stage": "rl-1", "inputs": Inputs(before=TrainResult(checkpoint=tmp_path, step=200))}
    )
    made = rl_job(RlJob, first)
    assert (made.first_step, made.last_step, made.seconds) == (1, 10_000, ("cpu", 5.0))
