"""Whose value counts: the order of layers in docs/recipes.md, and what follows from the stages that a person wrote."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import curricula
from curricula.recipe import Origin, Recipe
from tests.makers import raises

Write = Callable[..., Path]
STAGES = """stages:
  - {steps: 7, horizon: 12, mix: {travel: 1, function: 1, telepathy: 1}}
  - {steps: 9, horizon: 14, mix: {travel: 1, function: 1}}"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_recipe(*lines: str, name: str = "mine", extends: str | Path = "equalized-r2g") -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text("\n".join([f"name: {name}", f"extends: {extends}", "source: ours", *lines]))
        return path

    return write_recipe


def load(
    name: str | Path, profile: str | Path | None = "laptop-quick", overrides: dict[str, Any] | None = None, **rest: Any
) -> Recipe:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return curricula.load(name, profile, overrides, **rest)


def stages(recipe: Recipe) -> list[tuple[int, int | None, set[str]]]:
    return [(stage.steps, stage.horizon, set(stage.stage.mix)) for stage in recipe.planned_stages]


def replaced(recipe: Recipe) -> dict[str, tuple[Any, str, Any, str]]:
    return {row.key: (row.old, row.where, row.new, row.by) for row in recipe.replaced}


def test_a_persons_stages_credit_and_algorithm_stand_above_the_profile_and_their_sizes_below_it(write: Write) -> None:
    recipe = load(
        write(STAGES, "credit: {gamma: 0.93}", "algorithm: {name: rloo, lr: 0.5, batch: 3}", "model: {layers: 9}")
    )
    assert stages(recipe) == [(7, 12, {"travel", "function", "telepathy"}), (9, 14, {"travel", "function"})]
    assert (recipe.credit.gamma, recipe.algorithm.name) == (0.93, "rloo")
    assert (recipe.algorithm.lr, recipe.algorithm.batch, recipe.model.layers) == (2e-4, 8, 2)
    assert {row.old for row in recipe.replaced if row.key == "algorithm.lr"} == {1e-6, 0.5}
    assert replaced(recipe)["model.layers"] == (9, "recipe mine", 2, "profile laptop-quick")


def test_lengths_and_evaluated_gyms_follow_a_persons_stages(write: Write) -> None:
    recipe = load(write(STAGES))
    assert recipe.evaluate.gyms == ("travel", "function", "telepathy")
    assert (recipe.evaluate.horizon, recipe.demonstrations.horizon) == (14, 14)
    assert recipe.algorithm.max_response_tokens >= 14 * 96
    assert recipe.model.max_context >= recipe.algorithm.max_prompt_tokens + recipe.algorithm.max_response_tokens
    assert recipe.origin("evaluate.horizon").where == "follows the stages"
    assert recipe.gym("function").tasks == {"tier": "easy"}


def test_what_a_person_wrote_of_the_evaluation_does_not_follow(write: Write) -> None:
    recipe = load(write(STAGES, "evaluate: {horizon: 9, gyms: [travel]}"))
    assert (recipe.evaluate.horizon, recipe.evaluate.gyms) == (9, ("travel",))
    assert load(write(STAGES), overrides={"evaluate.horizon": 20}).evaluate.horizon == 20


def test_a_shorter_experiment_is_evaluated_shorter(write: Write) -> None:
    recipe = load(write("stages: [{steps: 4, horizon: 4, mix: {travel: 1}}]"))
    assert (recipe.evaluate.horizon, recipe.demonstrations.horizon) == (4, 4)


def test_overrides_alone_only_lengthen_so_that_trials_and_earlier_runs_stay_what_they_were() -> None:
    shorter = load("equalized-r2g", overrides={"stages.*.horizon": 4})
    assert shorter.evaluate.horizon == 6
    longer = load("equalized-r2g", overrides={"stages.2.horizon": 9})
    assert (longer.evaluate.horizon, longer.demonstrations.horizon) == (9, 9)
    wider = load("equalized-r2g", overrides={"stages.0.mix": {"function": 1}})
    assert wider.evaluate.gyms == ("travel", "function")


def test_a_persons_words_for_a_profile_stand_above_all_but_overrides(write: Write) -> None:
    path = write(
        STAGES, "profiles: {laptop-quick: {algorithm: {lr: 0.1}, stages: [{steps: 3, horizon: 5, mix: {math: 1}}]}}"
    )
    recipe = load(path, overrides={"algorithm.group": 4})
    assert stages(recipe) == [(3, 5, {"math"})]
    assert (recipe.algorithm.lr, recipe.algorithm.group) == (0.1, 4)
    assert recipe.origin("algorithm.lr").where == "recipe mine, for profile laptop-quick"
    assert load(path, None, check=False).total_steps == 16


def test_a_persons_recipe_upon_another_of_theirs(write: Write) -> None:
    base = write(STAGES, "credit: {gamma: 0.9}", name="base")
    recipe = load(write("credit: {k: 3.0}", extends=base))
    assert stages(recipe)[0][1] == 12
    assert (recipe.credit.gamma, recipe.credit.k) == (0.9, 3.0)


def test_stages_without_a_schedule_end_an_inherited_one(write: Write) -> None:
    assert stages(load(write(STAGES, extends="scaling-inter")))[1][1] == 14
    given = {"stages": [{"steps": 5, "horizon": 6, "mix": {"travel": 1}}]}
    assert stages(load("scaling-inter", overrides=given)) == [(5, 6, {"travel"})]


def test_a_schedule_without_stages_takes_the_horizons_of_inherited_ones(write: Write) -> None:
    recipe = load(write("schedule: {kind: scaling_inter, start: 4, increment: 2, every: 20, cap: 8}"))
    assert [(stage.first, stage.last, stage.horizon) for stage in recipe.planned_stages][-1] == (41, 60, 8)
    assert recipe.evaluate.horizon == 8


def test_a_gym_of_a_persons_own_mix_leaves_an_inherited_held_out_and_that_is_said(write: Write) -> None:
    recipe = load(write(STAGES))
    assert recipe.split.held_out == ("intention", "search")
    assert any("telepathy left split.held_out" in sentence for sentence in recipe.warnings)
    with raises("recipe.conflict"):
        load(write(STAGES, "split: {held_out: [telepathy]}"))
    with raises("recipe.conflict"):
        load("equalized-r2g", overrides={"stages.0.mix": {"telepathy": 1}})


def test_every_value_that_was_replaced_is_listed_with_who_did_it(write: Write) -> None:
    recipe = load(write(STAGES, "algorithm: {lr: 0.5}"), overrides={"credit.gamma": 0.7})
    rows = [(row.key, row.where, row.by) for row in recipe.replaced]
    assert ("stages", "profile laptop-quick", "recipe mine") in rows
    assert ("stages", "recipe equalized-r2g", "recipe mine") in rows
    assert ("algorithm.lr", "recipe mine", "profile laptop-quick") in rows
    assert ("credit.gamma", "recipe equalized-r2g", "override") in rows
    assert ("evaluate.horizon", "profile laptop-quick", "follows the stages") in rows
    assert all(row.old != row.new for row in recipe.replaced)


def test_a_mix_that_the_laptop_cannot_play_is_replaced_and_listed() -> None:
    recipe = load("equalized-r2g")
    assert recipe.training_gyms == ("travel",)
    assert replaced(recipe)["stages"][3] == "profile laptop-quick"
    assert not any(row.key == "stages" for row in load("equalized-r2g", "qwen3-8b").replaced if row.by != "override")


def test_what_a_persons_profile_says_is_above_the_tasks_and_sizes_of_the_profile_that_it_extends(write: Write) -> None:
    profile = write("hardware: {threads: 2}", "algorithm: {lr: 0.01}", name="slow", extends="laptop")
    recipe = load("equalized-r2g", profile)
    assert (recipe.hardware.threads, recipe.algorithm.lr) == (2, 0.01)
    assert (recipe.model.hidden_size, recipe.algorithm.batch, recipe.training_gyms) == (64, 16, ("errand", "wish"))
    assert load("fixed-textcraft", profile).hardware.threads == 2


def test_a_persons_profile_extends_one_that_extends_another(write: Write, tmp_path: Path) -> None:
    profile = write("hardware: {threads: 1}", name="mine", extends="laptop-lm")
    recipe, base = load("equalized-r2g", profile), load("equalized-r2g", "laptop-lm")
    assert (recipe.hardware.threads, base.hardware.threads) == (1, 2)
    assert (recipe.model, recipe.training_gyms, recipe.credit) == (base.model, base.training_gyms, base.credit)
    (tmp_path / "laptop-lm.yaml").write_text("extends: laptop-lm\nhardware: {threads: 1}\n")
    assert load("equalized-r2g", tmp_path / "laptop-lm.yaml").model == base.model
    (tmp_path / "mine.yaml").write_text(f"extends: {tmp_path / 'other.yaml'}\n")
    (tmp_path / "other.yaml").write_text(f"extends: {tmp_path / 'mine.yaml'}\n")
    with raises("recipe.circular", "Profile 'mine' extends itself (mine -> other -> mine). Remove one extends."):
        load("equalized-r2g", tmp_path / "mine.yaml")


def test_a_persons_profile_does_not_take_the_sources_of_the_profile_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text("extends: laptop\nmodel: {initializer_range: 0.3}\n")
    recipe = load("equalized-r2g", tmp_path / "slow.yaml")
    assert recipe.origin("model.initializer_range") == Origin("profile slow", "yours")
    assert recipe.origin("demonstrations.skill").citation.startswith("ours: deliberately weak")


@pytest.mark.parametrize(("key", "value"), [("hardware", "3"), ("algorithm", "[lr]"), ("gyms", "!!set {errand}")])
def test_a_block_that_is_no_mapping_is_refused_where_a_later_block_would_replace_it(
    write: Write, key: str, value: str
) -> None:
    with raises("recipe.invalid_value", f"Recipe mine: '{key}' must be a mapping"):
        load(write(f"{key}: {value}"), "laptop")
    with raises("recipe.invalid_value", f"Profile mine: '{key}' must be a mapping"):
        load("equalized-r2g", write(f"{key}: {value}", extends="laptop"))


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("stages: 3", "'stages' must be a list of stages, not 3"),
        ("stages: {a: 1}", "'stages' must be a list of stages, not {'a': 1}"),
        ("stages: [3]", "'stages[0]' must be a mapping"),
        ("stages: [{steps: x, mix: {wish: 1}}]", "stages[0]: steps: input should be a valid integer"),
        ("schedules: [scaling_inter]", "'schedules' must be a mapping"),
        ("schedules: {scaling_inter: 3}", "'schedules.scaling_inter' must be a mapping"),
        ("own: {gyms: 3}", "'own.gyms' must be a mapping"),
        ("own: {in_place_of: 3}", "'own.in_place_of' must be a list of names"),
        ("own: {sizes: 3}", "'own.sizes' must be a mapping"),
        ("environments: {tau: 3}", "'environments.tau' must be a mapping"),
    ],
)
def test_a_profile_of_another_shape_is_refused_by_its_key(write: Write, line: str, fact: str) -> None:
    profile = write(line, extends="laptop")
    with raises("recipe.invalid_value", f"Profile mine{'' if fact.startswith('stages') else ':'}", fact):
        load("scaling-inter", profile)


def test_a_key_of_a_profile_that_is_no_text_is_refused_as_unknown(write: Write) -> None:
    with raises("profile.recipe_key", "Profile mine sets '1'"):
        load("equalized-r2g", write("1: 2", extends="laptop"))


def test_an_empty_block_sets_nothing(write: Write) -> None:
    assert load(write("algorithm:", extends="rloo-textcraft"), "laptop").algorithm.name == "rloo"


def test_epochs_count_the_tasks_that_are_there(write: Write) -> None:
    easy = "gyms: {math: {tasks: {tier: easy}}}"
    path = write("stages: [{epochs: 2, horizon: 6, mix: {math: 1}}]", "demonstrations: {top_k: 9}", easy)
    recipe = load(path)
    # Half of math's 259 easy training tasks are demonstrated at most, in batches of 8.
    assert recipe.stages[0].pool == 259 - 129
    assert recipe.total_steps == 2 * (130 // 8)
    assert json.loads(json.dumps(recipe.resolved()))["stages"][0]["pool"] == 130
    assert curricula.from_resolved(recipe.resolved()).total_steps == recipe.total_steps


def test_the_paper_s_epochs_count_the_pool_under_a_profile_and_the_published_set_as_published() -> None:
    assert load("equalized-r2g", None).total_steps == 15 * (2426 // 128)
    under = load("equalized-r2g", "qwen3-8b")
    assert under.total_steps == 15 * ((under.stages[0].pool or 0) // 128) != 270
    assert under.rl_tasks == under.stages[0].pool


def test_a_runs_record_is_a_recipe_that_keeps_what_it_holds(write: Write, tmp_path: Path) -> None:
    resolved = load(write(STAGES, "algorithm: {name: rloo}"), overrides={"algorithm.lr": 3e-3}).resolved()
    record = tmp_path / "run.json"
    record.write_text(json.dumps({"id": "x", "created": 1.0, "resolved": resolved}))
    assert load(record, "laptop-quick").resolved() == resolved
    assert load(record, None).resolved() == resolved


def test_a_profile_that_a_persons_file_names_is_the_one_that_auto_means(write: Write) -> None:
    from curricula.host import Host, choose_profile

    assert choose_profile(write("profile: qwen3-4b"), "auto", Host) == "qwen3-4b"
    assert load(write("profile: qwen3-4b"), "laptop-quick").model.path is None
