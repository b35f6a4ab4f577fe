"""Recipes that no machine can hold or read are refused at once, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

import curricula
from tests.makers import raises

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [
        ("stages: [{steps: 1000000000000, horizon: 6, mix: {errand: 1}}]", "recipe.invalid_value", "steps"),
        ("stages: [{tokens: 1000000000000000, horizon: 6, mix: {errand: 1}}]", "recipe.invalid_value", "steps"),
        (
            "schedule: {kind: scaling_inter, start: 1, increment: 1, every: 1, cap: 1000000000000}",
            "recipe.invalid_value",
            "less than or equal to 10000",
        ),
        ("profiles: {laptop: {model: {hidden_size: 100000000}}}", "model.unsupported", "weights"),
        ("profiles: {laptop: {model: {layers: 1000000}}}", "model.unsupported", "weights"),
        ("gyms:\n" + "".join(f"  key{n}: {{}}\n" for n in range(30_000)), "file.unreadable", "128 KB"),
        ("gyms:\n" + "".join(f" k{n}: 1\n" for n in range(6_000)), "file.unreadable", "10,000 values"),
        (BOMB, "file.unreadable", "10,000 values"),
        ("a: &a [*a]", "file.unreadable", "10,000 values"),
        ("gyms: " + "[" * 2000, "file.unreadable", ""),
        ('source: "\\ud800"', "file.unreadable", "surrogate"),
    ],
)
def test_what_is_too_large_is_one_sentence(tmp_path: Path, text: str, code: str, fact: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\nextends: equalized-r2g\n{text}\n")
    with raises(code, fact):
        curricula.load(path, "laptop")


@pytest.mark.parametrize(
    ("overrides", "code", "fact"),
    [
        ({f"gyms.k{n}": 1 for n in range(30_000)}, "recipe.bad_override", "10,000 values"),
        ({"stages": [{"steps": 1, "horizon": 6, "mix": {"errand": 1}}] * 30_000}, "recipe.bad_override", "10,000"),
        ({"demonstrations.policy": "\ud800"}, "recipe.bad_override", "surrogate"),
        ({"name": {}}, "recipe.invalid_value", "name"),
        ({"credit": {}}, "recipe.bad_override", "'credit' has an empty mapping, which sets nothing"),
        ({"algorithm.group": 10**12}, "recipe.invalid_value", "less than or equal to 1000000"),
        ({"cold_start.steps": 10**12}, "recipe.invalid_value", "less than or equal to 1000000"),
    ],
)
def test_overrides_are_bounded_too(overrides: dict[str, object], code: str, fact: str) -> None:
    with raises(code, fact):
        curricula.load("equalized-r2g", "laptop", overrides)


def test_the_longest_recipe_of_ours_is_far_from_the_limits(tmp_path: Path) -> None:
    import yaml

    for name in curricula.recipe_names():
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.dump(curricula.load(name, "laptop", check=False).resolved(), Dumper=yaml.CSafeDumper))
    longest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_size)
    assert longest.stat().st_size < 2**17 / 4
    assert curricula.load(longest, check=False).name == longest.stem
