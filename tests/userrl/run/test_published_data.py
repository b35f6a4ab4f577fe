"""`data`: the published tasks of all gyms by one switch, with the papers' splits; what is absent is said."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import polars
import pytest
from typer.testing import CliRunner

import curricula
from curricula.host import Host
from curricula.suites import load_suite
from flows.cli.main import app
from tests.flows.small import result, start
from tests.makers import raises
from tests.published import published
from tests.userrl_core.gyms.released_copy import write_copy
from userrl.run.readiness import resolve, verdict
from userrl.run.suites import settings_of
from userrl.run.tasks import rl_tasks, tasks_of, users_of
from userrl.run.tasks import test_tasks as held_out
from userrl_core.errors import ConfigError
from userrl_core.gyms import make, tasks
from userrl_core.gyms.prompt import opening_messages
from userrl_core.gyms.published import LISTED, PAPER_GYMS, ROWS, Edition, published_tasks
from userrl_core.gyms.taskfile import write_tasks

TEST = {"travel": 471, "turtle": 48, "function": 78, "tau": 165, "persuade": 42, "intention": 40, "telepathy": 41}
TEST |= {"search": 125}
RELEASED = {"travel": 925, "turtle": 423, "function": 200, "tau": 500, "persuade": 378}
MIX = {"turtle": 1, "function": 1, "tau": 1, "persuade": 1}
CLUSTER = Host(gpus=8, gpu_memory=143.8, packages=frozenset({"verl", "vllm"}), keys=frozenset({"OPENAI_BASE_URL"}))


@pytest.fixture(scope="module")
def folder() -> Path:
    for part in ("userrl", "tau-bench"):
        root = published(part).parent
    return root


def load(
    recipe: str = "equalized-r2g", profile: str | None = "qwen3-8b", folder: Path | None = None, **more: Any
) -> curricula.Recipe:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return curricula.load(recipe, profile, more, data_folder=folder, keys=())


@pytest.mark.parametrize("sources", [{}, {"gyms.wish.published": "FILE"}])
def test_a_name_in_only_that_no_test_task_has_is_refused_when_the_recipe_is_resolved(
    sources: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    if sources:
        write_tasks(tmp_path / "wish.jsonl", [task for split in ("train", "test") for task in tasks("wish", split)])
        sources = {"gyms.wish.published": str(tmp_path / "wish.jsonl")}
    changes = {"evaluate.gyms": ["wish"], **sources}
    with raises("task.none_left", "gyms.wish.only names 'size-w'", "did you mean 'size-"):
        resolve("equalized-r2g", "laptop", changes | {"gyms.wish.only": ["size-2", "size-w"]})
    resolve("equalized-r2g", "laptop", changes | {"gyms.wish.only": ["size-2", "size-3"]})
    resolve("equalized-r2g", "laptop", {"gyms.wish.only": ["size-2", "size-3"], "gyms.wish.tasks": {"sizes": [2]}})


@pytest.mark.parametrize(("edition", "function"), [("released", 200), ("paper", 460)])
def test_every_gym_has_the_papers_splits_and_counts(folder: Path, edition: Edition, function: int) -> None:
    found = {gym: Counter(task.split for task in published_tasks(gym, folder, edition)) for gym in PAPER_GYMS}
    trained = {gym: found[gym]["train"] + found[gym]["validation"] for gym in LISTED}
    assert {gym: counts["test"] for gym, counts in found.items()} == TEST
    assert trained == RELEASED | {"function": function}
    assert sum(trained.values()) == {"released": 2426, "paper": 2686}[edition]
    assert {gym: found[gym]["train"] + found[gym]["validation"] for gym in ("intention", "telepathy", "search")} == {
        "intention": 380,
        "telepathy": 360,
        "search": 0,
    }
    assert all(0.03 < found[gym]["validation"] / trained[gym] < 0.08 for gym in LISTED)


def test_one_switch_changes_all_gyms_and_epochs_count_the_tasks_that_are_there(folder: Path) -> None:
    changed = {"data": "published", "stages.*.mix": MIX, "evaluate.gyms": [*MIX, "intention", "telepathy"]}
    recipe = load(folder=folder, **changed)
    counts = {gym: len(tasks_of(recipe, gym, "train")) for gym in MIX}
    assert counts == {"turtle": 398, "function": 188, "tau": 469, "persuade": 362}
    assert recipe.stages[0].pool == recipe.rl_tasks == sum(counts.values()) - sum(n // 2 for n in counts.values())
    assert Counter(task.gym for task in held_out(recipe, 0)) == {gym: TEST[gym] for gym in recipe.evaluation_gyms}
    assert {task.source for task in held_out(recipe, 0)} == {"published:userrl"}
    assert {recipe.data_of(gym) for gym in recipe.played_gyms} == {"published (the released list)"}
    assert len(rl_tasks(recipe, "function", ())) == 188


@pytest.mark.parametrize("name", ["grpo", "ppo", "tarl", "tarl-no-judge"])
def test_tarls_recipes_verify_published_tasks_by_their_writes_and_all_else_as_before(name: str, folder: Path) -> None:
    published = load(name, "tarl-8b", folder)
    assert published.gyms["tau"].published == "published"
    assert published.gyms["tau"].config == {"check_outputs": False, "verifier": "writes"}
    assert load(name, "tarl-8b", folder, **{"gyms.tau.config.verifier": "database"}).gyms["tau"].config["verifier"] == (
        "database"
    ), "tau-bench's verdict for who asks for it"
    ours = load(name, "tarl-8b", folder, data="ours")
    assert "verifier" not in ours.gyms["tau"].config, "runs on our own tasks keep their id"
    assert "verifier" not in load("equalized-r2g", "qwen3-8b", folder, data="published-or-ours").gyms["tau"].config


def test_the_released_prompt_style_opens_with_the_prompt_of_the_tasks_parquet_row(folder: Path) -> None:
    mix = ["turtle", "function", "tau", "persuade", "intention", "telepathy"]
    changed = {"data": "published", "stages.*.mix": MIX, "evaluate.gyms": mix, "model.prompt_style": "released"}
    recipe = load(folder=folder, **changed)
    for gym in mix:
        task = tasks_of(recipe, gym, "test")[0]
        name, field = (task.payload["title"], "title") if gym in ("turtle", "telepathy") else (task.id, "id")
        rows = polars.read_parquet(folder / "userrl" / "data" / f"{ROWS[gym]}" / "test.parquet").to_dicts()
        row = next(row for row in rows if row["reward_model"][field] == name)
        made = make(gym, task)
        assert opening_messages(made, "", 16, "released") == row["prompt"]
        assert opening_messages(made, "", 16, "full") != row["prompt"]


def test_published_without_the_option_databases_of_travel_is_refused_with_both_ways_round(folder: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(folder=folder, data="published")
    assert str(refused.value) == (
        f"data is published, and gym 'travel' has no published tasks in {folder}: the released option database "
        "travelgym_data_22.json is not in this copy. Add them there (gyms/TravelGym/travelgym/data in userrl), or set data: "
        "published-or-ours to combine our own travel tasks with the published ones of other gyms."
    )


def test_published_or_ours_keeps_our_travel_and_says_so(folder: Path) -> None:
    recipe = load(folder=folder)
    assert recipe.data == "published-or-ours"
    assert recipe.data_of("travel") == (
        "ours, since its published tasks were not found: the released option database travelgym_data_22.json is not in this copy"
    )
    assert "SERPER_API_KEY is not set" in recipe.data_of("search")
    assert {recipe.data_of(gym) for gym in PAPER_GYMS[1:-1]} == {"published (the released list)"}
    assert verdict(recipe, CLUSTER).kind == "composes"


def test_a_gpu_profile_is_refused_only_where_nothing_published_is_found(tmp_path: Path) -> None:
    recipe = load(folder=tmp_path / "nothing")
    answer = verdict(recipe, CLUSTER)
    assert (answer.kind, answer.reason) == ("refused", "data")
    assert answer.code == "task.none_imported"
    assert "none of travel, turtle, function, tau, persuade, intention, telepathy" in answer.sentence
    assert verdict(load(folder=tmp_path / "nothing", data="ours"), CLUSTER).kind == "composes"
    assert load(folder=tmp_path, profile="laptop").data == "ours"


def test_the_folder_enters_no_id_and_what_each_gym_is_played_on_does(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(folder)
    recipe = load(folder=folder)
    assert load(data_folder=str(tmp_path / "elsewhere")).hash == recipe.hash
    assert load(folder=folder, data="ours").hash != recipe.hash != load(folder=folder, published="paper").hash
    assert load(folder=folder, data="ours").hash == load().hash


def test_a_record_of_a_run_keeps_its_tasks_whatever_lies_in_the_folder_since(folder: Path, tmp_path: Path) -> None:
    recipe = load(folder=folder)
    (tmp_path / "run.json").write_text(json.dumps({"resolved": recipe.resolved()}))
    again = load(str(tmp_path / "run.json"), None, folder=tmp_path)
    assert (again.hash, again.gym("turtle").published) == (recipe.hash, "published")


def test_a_bad_file_is_an_error_and_no_reason_to_take_our_own_tasks(folder: Path, tmp_path: Path) -> None:
    stories = "gyms/TurtleGym/turtlegym/data/all_stories_refined.json"
    shutil.copytree(folder / "userrl" / "data", tmp_path / "userrl" / "data", copy_function=os.symlink)
    (tmp_path / "userrl" / stories).parent.mkdir(parents=True)
    (tmp_path / "userrl" / stories).write_text("[]")
    with raises("task.file_unreadable", "JSON object, not list"):
        load(folder=tmp_path)


def test_recipe_show_names_the_tasks_of_every_gym(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_PUBLISHED_DATA", str(folder))
    said = CliRunner().invoke(app, ["recipe", "show", "equalized-r2g", "--profile", "qwen3-8b", "--json"])
    assert said.exit_code == 0
    assert json.loads(said.stdout)["data"]["turtle"] == "published (the released list)"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("prepared")
def test_a_laptop_run_on_published_function_and_turtle_tasks_ends_with_a_report_that_names_them(
    folder: Path, tmp_path: Path
) -> None:
    changed = {
        "data": "published",
        "data_folder": str(folder),
        "evaluate.gyms": ["function", "turtle"],
        "stages": [{"steps": 2, "horizon": 6, "mix": {"function": 1, "turtle": 1}}],
        "demonstrations.episodes": 60,
        "demonstrations.top_k": 60,
        "cold_start.steps": 20,
        "algorithm.batch": 2,
        "algorithm.group": 4,
        "evaluate.tasks": 4,
        "evaluate.validation_tasks": 4,
    }
    done, _ = result(start(tmp_path / "home", overrides=changed, profile="laptop"))
    assert done["data"] == dict.fromkeys(("function", "turtle"), "published (the released list)")
    page = (Path(done["folder"]) / "report.md").read_text()
    assert "Tasks: function, turtle published (the released list)." in page
    assert set(done["table"]["RL"]) == {"function", "turtle"}


def test_released_prompts_of_a_suite_reach_agent_and_users() -> None:
    suite = load_suite("userrl-table3:released+prompts+ours")
    overrides = settings_of(suite, pretrained=True)
    assert overrides["model.prompt_style"] == "released"
    assert overrides["evaluate.user"]["options"] == {"model": "gpt-4o", "temperature": 0.0, "prompts": "released"}


def test_users_with_released_prompts_are_refused_before_play_where_the_copy_lacks_them(tmp_path: Path) -> None:
    user = {"kind": "openai", "options": {"model": "m", "base_url": "http://127.0.0.1:9/v1", "prompts": "released"}}
    recipe = curricula.load(
        "equalized-r2g",
        profile="laptop",
        overrides={"gyms.turtle.user": user, "data_folder": str(tmp_path)},
        check=False,
    )
    with raises("prompts.missing", "SalesforceAIResearch/UserRL", str(tmp_path)):
        users_of(recipe, ["turtle"], role="train")
    write_copy(tmp_path)
    kind, options = users_of(recipe, ["turtle"], role="train")["turtle"]
    assert (kind, options["texts"]) == ("openai", str(tmp_path))
    assert "texts" not in recipe.gym("turtle").user.options  # the run's id does not depend on the folder
