"""Numbers and citations of recipes and profiles: as their source has them, or marked ours with a reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import curricula
from curricula.layers import _cited
from curricula.merge import leaves
from curricula.recipe import Recipe
from tests.makers import raises
from userrl_core.gyms import make, tasks
from userrl_core.gyms.prompt import opening_messages


def load(name: str, profile: str | None = None, **overrides: object) -> Recipe:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return curricula.load(
            name, profile, {key.replace("__", "."): value for key, value in overrides.items()}, check=False
        )


@pytest.mark.parametrize("profile", [None, "laptop", "tarl-8b", "h200-1"])
def test_tarl_does_not_check_outputs_and_userrl_does(profile: str | None) -> None:
    assert load("grpo", profile).gym("tau").config == {"check_outputs": False}
    assert load("equalized-r2g", profile).gym("tau").config == {}


@pytest.mark.parametrize(
    ("recipe", "profile", "key", "citation"),
    [
        (
            "grpo",
            "tarl-8b",
            "gyms.tau.user.kind",
            "ours: a plain prompt and Qwen3-32B; TARL 2.1: GPT-4 with a ReAct prompt",
        ),
        ("grpo", None, "gyms.tau.config.check_outputs", "TARL 2.1: the outputs that a task demands are not checked"),
        (
            "equalized-r2g",
            "qwen3-8b",
            "hardware.engine",
            "ours: vLLM, the engine that verl 0.9 is tested with here; UserRL table 6",
        ),
        ("equalized-r2g", "qwen3-4b", "hardware.engine", "ours: vLLM"),
        ("warm-up", None, "stages", "TARL 4.3: 30 steps first"),
        ("grpo-entropy-mask", None, "algorithm.entropy_mask", "TARL 5.2"),
        ("fixed-textcraft", None, "schedule.turns", "released code: 30 turns; AgentGym-RL appendix B: 20"),
        ("fixed-searchqa", None, "schedule.turns", "released code: 5 turns; AgentGym-RL appendix B: 4"),
        ("fixed-webarena", None, "schedule.turns", "released code: 15 turns"),
        ("fixed-searchqa", None, "evaluate.horizon", "ours: that of its ScalingInter counterpart"),
        ("scaling-inter-textcraft", None, "algorithm.max_prompt_tokens", "ours: holds the opening and the tool"),
        (
            "scaling-inter-textcraft",
            None,
            "algorithm.loss_aggregation",
            "released code: a mean over the tokens of each",
        ),
        ("scaling-inter-textcraft", "laptop", "algorithm.loss_aggregation", "ours: "),
        ("scaling-inter-searchqa", None, "evaluate.horizon", "ours: the last horizon"),
        ("fixed-babyai", None, "stages", "ours: as its ScalingInter counterpart; the released code trains 10 epochs"),
        ("userrl-released", "qwen3-8b", "model.prompt_style", "released code: the prompt of each row"),
    ],
)
def test_a_value_says_where_it_comes_from(recipe: str, profile: str | None, key: str, citation: str) -> None:
    assert load(recipe, profile).origin(key).citation.startswith(citation)


SETTINGS = {"algorithm", "credit", "cold_start", "model", "demonstrations", "evaluate", "hardware", "split"}
SETTINGS |= {"judge", "intervention"}
"""Blocks of many settings. Other blocks, such as a schedule or a gym's, are one value of several parts."""
SHIPPED = sorted(
    path for kind in ("recipes", "profiles") for path in (Path(curricula.__file__).parent / kind).glob("*.yaml")
)


def blocks(path: Path) -> Iterator[dict[str, Any]]:
    """A file's own values, and those that it has for profiles."""
    document = yaml.safe_load(path.read_text())
    if "extends" in document and path.parent.name == "profiles":
        document = {**yaml.safe_load(path.with_stem(document["extends"]).read_text()), **document}
    yield from (document, *(document.get("profiles") or {}).values())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_source_that_is_not_ours_names_the_keys_that_it_covers(path: Path) -> None:
    for block in blocks(path):
        cited, ours = _cited(block.get("sources"), ""), str(block.get("source", "")).startswith("ours")
        ignored = (
            "name",
            "control",
            "source",
            "sources",
            "extends",
            "runs_on",
            "profiles",
            "own",
            "environments",
            "small",
        )
        for leaf, _ in leaves({key: value for key, value in block.items() if key not in ignored}):
            parts = leaf.split(".")
            prefixes = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
            found = next((prefix for prefix in prefixes if prefix in cited), "")
            named = found == leaf or (found and found not in SETTINGS)
            assert named or cited.get(found, "ours" if ours else "").startswith("ours"), leaf


@pytest.mark.parametrize(
    ("recipe", "key", "citation"),
    [
        ("equalized-r2g", "algorithm.inner_epochs", "ours: verl's default"),
        ("equalized-r2g", "algorithm.lr", "UserRL table 6"),
        ("grpo", "algorithm.inner_epochs", "TARL table 5"),
        ("grpo", "algorithm.loss_aggregation", "TARL 2.2, equation 6"),
        ("grpo", "credit.filter", "ours: groups without a signal carry no gradient in any case"),
        ("fixed-textcraft", "credit.filter", "ours: groups without a signal carry no gradient in any case"),
        ("ppo", "algorithm.gae_lambda", "TARL 2.2, footnote: gamma = lambda = 1"),
    ],
)
def test_no_citation_spills_to_a_key_that_its_source_does_not_state(recipe: str, key: str, citation: str) -> None:
    assert load(recipe).origin(key).citation == citation


def test_several_keys_of_a_block_share_a_citation() -> None:
    cited = _cited({"algorithm.{lr, group}": "Smith 2026", "{data, stages}": "ours"}, "recipe mine")
    assert cited == {"algorithm.lr": "Smith 2026", "algorithm.group": "Smith 2026", "data": "ours", "stages": "ours"}


def test_evaluation_samples_from_the_same_nucleus_as_training_where_it_samples() -> None:
    assert load("grpo").evaluation_top_p == 0.95
    assert load("grpo", evaluate__top_p=0.5).evaluation_top_p == 0.5
    assert load("grpo", evaluate__temperature=0.0).evaluation_top_p == 1.0
    assert load("equalized-r2g").evaluation_top_p == 1.0


def test_a_test_share_that_would_change_nothing_but_the_hash_is_refused() -> None:
    with raises("recipe.invalid_value", "0.2"):
        load("equalized-r2g", split__test=0.3)


def test_a_corrected_citation_renames_no_run() -> None:
    recipe = load("warm-up")
    assert recipe.source.startswith("TARL 4.3: ")
    assert "source" not in recipe.identity
    assert recipe.former_identity["source"].startswith("TARL 5: ")  # ids of up to f197b02 are found by it


def test_travels_prompt_says_how_many_choices_count() -> None:
    task = tasks("travel", "train", tier="easy")[0]
    for one, said in ((True, "the first choice for each part counts"), (False, "you may choose several for each part")):
        gym = make("travel", task, one_choice_per_aspect=one)
        system = opening_messages(gym, gym.reset(seed=1), 16)[0]["content"]
        assert said in system
        assert ("first choice" in system) == one
