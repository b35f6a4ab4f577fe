"""A person's values that have no effect, given the others, are named; those of shipped files are not."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

import curricula
from curricula import profile_names, recipe_names
from curricula.load import load
from userrl_core.errors import ConfigError


def named(recipe: str | Path, profile: str | None = "laptop", **overrides: Any) -> list[str]:
    """Return the sentences on values without an effect. overrides: keys with ``__`` for a dot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dotted = {key.replace("__", "."): value for key, value in overrides.items()}
        loaded = load(recipe, profile, dotted, check=False)
    return [sentence for sentence in loaded.warnings if "no effect" in sentence]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            {"demonstrations__temperature": 0.5},
            "demonstrations.temperature has no effect, because the demonstrator is a script.",
        ),
        (
            {"demonstrations__policy": "gpt-4o", "demonstrations__skill": 0.5},
            "demonstrations.skill has no effect, because the demonstrator is the served model gpt-4o.",
        ),
        (
            {"algorithm__critic_lr": 1e-3, "algorithm__critic_warmup": 3},
            "algorithm.critic_lr, algorithm.critic_warmup have no effect, because algorithm.name is grpo, which has no critic.",
        ),
        ({"credit__k": 3.0}, "credit.k has no effect, because credit.shaping is equalized (audits of em read it)."),
        (
            {"model__path": "mine", "model__layers": 3},
            "model.layers has no effect, because model.path names a checkpoint.",
        ),
        ({"cold_start__epochs": 7.0}, "cold_start.epochs has no effect, because cold_start.steps replaces it."),
        (
            {"cold_start__enabled": False, "cold_start__lr": 1e-4, "cold_start__steps": 9},
            "cold_start.steps, cold_start.lr have no effect, because cold_start.enabled is false.",
        ),
        (
            {"credit__form": "paper"},
            "credit.form has no effect, because under credit.shaping equalized all forms give the same advantages.",
        ),
        (
            {"stages": [], "schedule": None, "evaluate__every": 7, "evaluate__last": 2},
            "evaluate.every, evaluate.last have no effect, because the recipe has no stages.",
        ),
        ({"published": "paper"}, "published has no effect, because data is ours."),
        ({"data_folder": "/mine"}, "data_folder has no effect, because data is ours."),
    ],
)
def test_a_value_that_nothing_reads_is_named_with_the_reason(overrides: dict[str, Any], sentence: str) -> None:
    assert named("equalized-r2g", **overrides) == [sentence]


def test_a_value_that_is_read_or_is_the_default_is_not_named() -> None:
    assert named("ppo", algorithm__critic_lr=1e-3, algorithm__gae_lambda=0.9) == []
    assert named("equalized-r2g", demonstrations__temperature=0.0, demonstrations__skill=0.5) == []
    assert named("em-r2g", credit__k=3.0, credit__form="paper", evaluate__every=7) == []
    judge = {"model": "m", "prompts": "released"}
    assert named("equalized-r2g", data_folder="/mine", judge=judge) == []
    assert named("equalized-r2g", data_folder="/mine", published="paper", gyms__tau__published="published") == []


def test_a_value_of_a_persons_file_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: mine\nextends: equalized-r2g\nalgorithm: {dpo_beta: 0.3}\n")
    assert named(tmp_path / "mine.yaml") == ["algorithm.dpo_beta has no effect, because algorithm.name is grpo."]


def test_a_resolved_recipe_names_only_what_overrides_it(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resolved = load("equalized-r2g", "laptop", {"algorithm.critic_lr": 1e-3}, check=False).resolved()
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(resolved))
    assert named(tmp_path / "mine.yaml", None) == []
    assert named(tmp_path / "mine.yaml", None, credit__k=3.0) == [
        "credit.k has no effect, because credit.shaping is equalized (audits of em read it)."
    ]


def test_no_shipped_recipe_names_a_value_under_any_profile() -> None:
    sentences = []
    for recipe in recipe_names():
        for profile in profile_names():
            try:
                sentences += named(recipe, profile)
            except ConfigError:
                continue  # the recipe has no stages under this profile
    assert sentences == []


@pytest.mark.parametrize(
    "base", [5, ["a"], "/nowhere\0", str(Path(curricula.__file__).parent / "recipes" / "none.yaml")]
)
def test_a_base_that_is_no_file_is_one_sentence(tmp_path: Path, base: Any) -> None:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"name": "mine", "source": "ours", "extends": base}))
    with pytest.raises(ConfigError):
        load(tmp_path / "mine.yaml", profile="laptop")
