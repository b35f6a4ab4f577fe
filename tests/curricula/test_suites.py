"""Suites: each value is its paper's or marked ours, and what is asked for by name is what is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from curricula.suites import Suite, load_suite, suite_named, suite_names
from curricula.validation import validated
from tests.makers import raises

EVERY = [
    word for name in suite_names() for word in (name, *(f"{name}:{variant}" for variant in load_suite(name).variants))
]


@pytest.mark.parametrize("word", EVERY)
def test_every_value_of_every_suite_and_variant_says_where_it_comes_from(word: str) -> None:
    suite = load_suite(word)
    assert suite.label == word
    assert all(source.strip() for source in suite.sources.values())
    assert set(suite.sources) <= set(Suite.model_fields)


def test_the_suites_are_those_of_the_papers_and_the_quick_one() -> None:
    assert suite_names() == (
        "agentgym-rl",
        "quick",
        "tarl-airline",
        "tarl-retail",
        "userbench-multi",
        "userbench-single",
        "userrl-native",
        "userrl-table3",
        "userrl-table4",
    )
    assert suite_named("quick")
    assert suite_named("userbench-single:hard")
    assert not suite_named("latest")


def test_the_papers_numbers() -> None:
    userrl, single = load_suite("userrl-table3"), load_suite("userbench-single")
    retail, multi = load_suite("tarl-retail"), load_suite("userbench-multi")
    assert (userrl.horizon, userrl.temperature, userrl.attempts, userrl.gyms) == (16, 0.0, 1, "paper")
    assert userrl.user.options == {"model": "gpt-4o", "temperature": 0.0}
    assert (single.horizon, single.max_tokens, single.temperature, single.tool_choice) == (20, 2048, 0.0, "required")
    assert single.setup["travel"].config["one_choice_per_aspect"] is True
    assert multi.setup["travel"].config["one_choice_per_aspect"] is False
    assert (retail.horizon, retail.attempts, retail.temperature, retail.top_p) == (30, 4, 0.7, 0.95)
    assert retail.setup["tau"].only == ("retail",)
    assert retail.setup["tau"].config == {"check_outputs": False}
    assert load_suite("tarl-retail:outputs").setup["tau"].config == {"check_outputs": True, "verifier": "writes"}
    assert load_suite("userrl-table4").played_as == "userrl-table3"
    agentgym = load_suite("agentgym-rl")
    assert (agentgym.horizon, agentgym.temperature, agentgym.attempts, agentgym.max_tokens) == (20, 1.0, 1, 512)
    assert (load_suite("agentgym-rl:sciworld").horizon, load_suite("agentgym-rl:sciworld").max_tokens) == (30, 200)
    assert load_suite("agentgym-rl:textcraft+samples").attempts == 64


@pytest.mark.parametrize("name", ["tarl-retail", "tarl-airline"])
def test_the_suites_of_tarl_play_with_the_react_user(name: str) -> None:
    suite = load_suite(name)
    assert suite.user.options["strategy"] == "react"
    assert load_suite(f"{name}:prompts").user.options == {"model": "gpt-4", "strategy": "react"}


def test_variants_lie_over_each_other_and_keep_what_they_do_not_name() -> None:
    suite = load_suite("userbench-multi:ours+hard")
    assert suite.data == "ours"
    assert suite.setup["travel"].only == ("hard",)
    assert suite.setup["travel"].config["one_choice_per_aspect"] is False
    assert suite.sources["data"].startswith("ours")
    assert suite.sources["horizon"] == "UserBench 4.1: 20 turns"


def test_a_value_without_a_source_and_an_unknown_variant_are_refused() -> None:
    values = {**load_suite("quick").model_dump(exclude_unset=True), "horizon": 12, "tasks": 5}
    with raises("recipe.missing_key"):
        validated(Suite, values, "suite 'mine'")
    with raises("argument.unknown_value", "'userbench-single'", "'hrad'"):
        load_suite("userbench-single:hrad")


SOURCES = "{gyms: ours, data: ours, user: ours, horizon: ours, temperature: ours, setup: ours}"


def own_suite(folder: Path, *lines: str, sources: str = SOURCES) -> Path:
    path = folder / "mine.yaml"
    first = ["about: a", "source: ours", "gyms: [errand]", "data: ours", "user: {kind: rule}", "horizon: 8"]
    path.write_text("\n".join([*first, "temperature: 0", f"sources: {sources}", *lines]))
    return path


@pytest.mark.parametrize(
    ("lines", "fact"),
    [
        (["variants: [a]"], "'variants' must be a mapping"),
        (["variants: {a: {}, b: 3}"], "'variants.b' must be a mapping"),
        (["variants: {a: {horizon: 9, sources: [x]}}"], "variants.a: 'sources' must be a mapping"),
        (["setup: 3", "variants: {a: {setup: {errand: {}}}}"], "'setup' must be a mapping"),
        (["variants: {a: {setup: 3}}"], "variants.a: 'setup' must be a mapping"),
        (["variants: {a: {setup: {errand: 3}}}"], "variants.a: 'setup.errand' must be a mapping"),
    ],
)
def test_a_suite_of_another_shape_is_refused_by_its_key_before_a_variant_is_laid_over_it(
    tmp_path: Path, lines: list[str], fact: str
) -> None:
    with raises("recipe.invalid_value", "Suite '", fact):
        load_suite(f"{own_suite(tmp_path, *lines)}:a")
    with raises("recipe.invalid_value", "'sources' must be a mapping"):
        load_suite(f"{own_suite(tmp_path, 'variants: {a: {horizon: 9}}', sources='[a]')}:a")


def test_settings_of_a_gym_that_are_no_mapping_replace_and_are_checked(tmp_path: Path) -> None:
    lines = ["setup: {errand: {user: {kind: openai}, tasks: {depths: [1]}}}"]
    path = own_suite(
        tmp_path, *lines, "variants: {rule: {setup: {errand: {user: rule}}}, wrong: {setup: {errand: {tasks: 3}}}}"
    )
    assert load_suite(f"{path}:rule").setup["errand"].user == load_suite(str(path)).user
    with raises("recipe.invalid_value", "setup.errand.tasks"):
        load_suite(f"{path}:wrong")


def test_a_suite_s_file_does_not_name_its_variant(tmp_path: Path) -> None:
    with raises("recipe.unknown_key", "'variant'"):
        load_suite(str(own_suite(tmp_path, "variant: zzz")))


def test_a_variant_whose_name_is_a_number_is_refused(tmp_path: Path) -> None:
    with raises("recipe.invalid_value", "variants.1"):
        load_suite(f"{own_suite(tmp_path, 'variants: {1: {horizon: 9}}')}:1")
