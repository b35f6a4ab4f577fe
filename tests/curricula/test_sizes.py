"""Recipes that no machine can hold or read are refused at once, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

import curricula
from userrl_core.errors import ConfigError

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stages: [{steps: 1000000000000, horizon: 6, mix: {errand: 1}}]", "steps never ends"),
        ("stages: [{tokens: 1000000000000000, horizon: 6, mix: {errand: 1}}]", "steps never ends"),
        (
            "schedule: {kind: scaling_inter, start: 1, increment: 1, every: 1, cap: 1000000000000}",
            "less than or equal to 10000",
        ),
        ("profiles: {laptop: {model: {hidden_size: 100000000}}}", "weights cannot be trained here"),
        ("profiles: {laptop: {model: {layers: 1000000}}}", "weights cannot be trained here"),
        ("gyms:\n" + "".join(f"  key{n}: {{}}\n" for n in range(30_000)), "more than 128 KB"),
        ("gyms:\n" + "".join(f" k{n}: 1\n" for n in range(6_000)), "more than 10,000 values"),
        (BOMB, "more than 10,000 values"),
        ("a: &a [*a]", "more than 10,000 values"),
        ("gyms: " + "[" * 2000, "cannot be read|no readable YAML"),
        ('source: "\\ud800"', "surrogate"),
    ],
)
def test_what_is_too_large_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\nextends: equalized-r2g\n{text}\n")
    with pytest.raises(ConfigError, match=says):
        curricula.load(path, "laptop")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({f"gyms.k{n}": 1 for n in range(30_000)}, "more than 10,000 values"),
        ({"stages": [{"steps": 1, "horizon": 6, "mix": {"errand": 1}}] * 30_000}, "more than 10,000 values"),
        ({"demonstrations.policy": "\ud800"}, "surrogate"),
        ({"algorithm.group": 10**12}, "less than or equal to 1000000"),
        ({"cold_start.steps": 10**12}, "less than or equal to 1000000"),
    ],
)
def test_overrides_are_bounded_too(overrides: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        curricula.load("equalized-r2g", "laptop", overrides)


def test_the_longest_recipe_of_ours_is_far_from_the_limits(tmp_path: Path) -> None:
    import yaml

    for name in curricula.recipe_names():
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(curricula.load(name, "laptop", check=False).resolved()))
        assert path.stat().st_size < 2**17 / 4
        assert curricula.load(path, check=False).name == name
