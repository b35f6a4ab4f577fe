"""Search spaces: what they refuse, what they suggest, and pruning's rule of equal points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest

from curricula import load
from sweeps.objective import Point
from sweeps.pruning import should_prune
from sweeps.space import EXAMPLE, SPACES, WHOLE_EXAMPLE, Pruning, Space, load_space
from tests.makers import raises
from userrl_core.errors import ConfigError

RULE = Pruning(percentile=50, min_trials=2)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return path


HEAD = "name: s\nsource: ours\nrecipe: equalized-r2g\n"


@pytest.mark.parametrize(
    ("text", "code", "fact"),
    [
        (HEAD + "parameters: {}\n", "sweep.bad_space", "parameters is empty"),
        (HEAD + "parameters: {g: {key: credit.gamma, options: []}}\n", "sweep.bad_space", "at least one value"),
        (HEAD + "parameters: {g: {options: [1, 2]}}\n", "sweep.bad_space", "needs a key"),
        (HEAD + "parameters: {g: {kind: range, key: a, low: 2, high: 1}}\n", "sweep.bad_space", "low 2"),
        (
            HEAD + "parameters: {g: {key: a, options: [1]}}\nobjectives: [{query: validation_scor}]\n",
            "warehouse.unknown_query",
            "did you mean",
        ),
        (
            HEAD + f"parameters: {{g: {{key: a, options: [1]}}}}\nobjectives: [{{query: {'x' * 5000}}}]\n",
            "warehouse.unknown_query",
            "there is no query",
        ),
        (HEAD + "parameters: {g: {key: a, options: [1]}}\nbudgets: {trials: 3}\n", "recipe.unknown_key", "budgets"),
        (
            HEAD + "parameters: {g: {key: a, options: [1]}}\nbudget: {trials: 0}\n",
            "recipe.invalid_value",
            "budget.trials",
        ),
        *(
            (HEAD + f"parameters: {{g: {{key: a, options: [1]}}}}\n{text}\n", "sweep.bad_space", f"{key} is ")
            for key, text in {
                "seed": "seed: -1",
                "sampler.seed": "sampler: {seed: 4294967296}",
                "confirm.top": "confirm: {top: -1}",
                "confirm.seeds.0": "confirm: {seeds: [9223372036854775808]}",
                "retries": "retries: -1",
                "pruning.warmup_steps": "pruning: {warmup_steps: -1}",
            }.items()
        ),
        (
            "space: {}\ntrials: 3\n",
            "sweep.bad_space",
            "Sweep space.yaml has no recipe and no parameters. A sweep file needs a recipe and parameters: `recipe: ",
        ),
        (
            HEAD + "parameters: {g: {kind: range}}\n",
            "recipe.missing_key",
            "'parameters.g.range.key', 'parameters.g.range.low', ",
        ),
        ("a: [", "file.unreadable", "YAML"),
        ("search:\n" + "".join(f"  k{n}: 1\n" for n in range(6_000)), "file.unreadable", "10,000 values"),
    ],
)
def test_a_wrong_space_is_refused_in_one_sentence(tmp_path: Path, text: str, code: str, fact: str) -> None:
    with raises(code, fact) as caught:
        load_space(write(tmp_path, text))
    sentence, _, example = str(caught.value).partition("\n")
    assert example in ("", WHOLE_EXAMPLE.rstrip())
    assert sentence.endswith("A file with each form of a parameter:") == bool(example)


@pytest.mark.parametrize(
    "parameters",
    ["{}", "[credit.gamma]", "{g: [0.6]}", "{g: 0.6}", "{g: {key: credit.gamma, low: 0}}", "{g: {kind: x}}"],
)
def test_a_wrong_parameter_is_answered_with_an_example_that_loads(tmp_path: Path, parameters: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_space(write(tmp_path, HEAD + f"parameters: {parameters}\n"))
    sentence, _, example = str(caught.value).partition("\n")
    assert "parameters" in sentence
    space = load_space(write(tmp_path, example))
    assert list(space.parameters) == ["gamma", "rate", "batch", "reward"]
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask()
    assert load(space.recipe, profile="laptop", overrides=space.suggest(trial)).credit.gamma in (0.6, 0.8, 0.9)


def test_a_parameter_with_limits_is_a_range(tmp_path: Path) -> None:
    text = HEAD + "parameters: {g: {key: credit.gamma, low: 0, high: 1}}\n"
    assert load_space(write(tmp_path, text)).parameters["g"].kind == "range"


def test_a_file_without_a_name_is_called_as_it_is_and_its_example_loads(tmp_path: Path) -> None:
    lines = [part for part in EXAMPLE.split("`") if ":" in part]
    space = load_space(write(tmp_path, "\n".join(lines)))
    assert (space.name, space.source, space.parameters["gamma"].labels()) == ("space", "ours", [0.6, 0.8])


def test_an_unknown_name_shows_the_nearest_space() -> None:
    with raises("sweep.no_such_sweep", "did you mean 'gamma'"):
        load_space("gama")


@pytest.mark.parametrize("path", sorted(SPACES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_space_loads_and_its_overrides_fit_its_recipe(path: Path) -> None:
    space = load_space(path.stem)
    study = optuna.create_study(directions=[o.direction for o in space.objectives])
    for _ in range(4):
        recipe = load(space.recipe, profile=space.profile, overrides=space.suggest(study.ask()))
        assert recipe.total_steps > 0


def test_bundles_of_overrides_are_one_choice() -> None:
    space = Space.model_validate(
        {
            "name": "s",
            "source": "ours",
            "recipe": "r",
            "parameters": {"h": {"options": {"short": {"a": 1, "b": 2}, "long": {"a": 3, "b": 4}}}},
        }
    )
    study = optuna.create_study()
    study.enqueue_trial({"h": "long"})
    assert space.suggest(study.ask()) == {"a": 3, "b": 4}


def point(value: float, **where: Any) -> Point:
    return Point(
        where.get("stage", "rl-1"), where.get("horizon", 4), where.get("validated", 6), where.get("step", 10), value
    )


def test_values_at_another_horizon_are_not_compared() -> None:
    others = [[point(0.9, horizon=6)], [point(0.9, horizon=6)]]
    assert should_prune([point(0.1)], others, RULE) is None


def test_a_value_below_the_percentile_at_the_same_point_is_pruned_and_a_tie_is_kept() -> None:
    others = [[point(0.8)], [point(0.9)], [point(0.7)]]
    assert should_prune([point(0.8)], others, RULE) is None
    assert should_prune([point(0.79)], others, RULE) is not None
    assert should_prune([point(0.8 - 2e-16)], others, RULE) is None


def test_too_few_others_prune_nothing() -> None:
    assert should_prune([point(0.0)], [[point(0.9)]], RULE) is None


def test_a_minimised_objective_prunes_what_lies_above() -> None:
    others = [[point(1.0)], [point(2.0)]]
    assert should_prune([point(3.0)], others, RULE, maximize=False) is not None
    assert should_prune([point(1.0)], others, RULE, maximize=False) is None


def test_a_sweep_that_was_stored_with_numbers_out_of_range_opens() -> None:
    stored = {"name": "s", "source": "ours", "recipe": "equalized-r2g", "confirm": {"top": -1}, "retries": -1}
    space = Space.model_validate({**stored, "parameters": {"g": {"key": "credit.gamma", "options": [0.6, 0.8]}}})
    assert list(space.faults()) == [
        f"{key} is -1; give a number from 0 to {2**63 - 1}" for key in ("retries", "confirm.top")
    ]
