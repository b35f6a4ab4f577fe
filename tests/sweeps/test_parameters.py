"""Every key of a recipe can be a parameter of a sweep, whatever its type; contradictory parameters are refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from optuna.trial import TrialState
from pydantic import BaseModel

from curricula import Recipe
from curricula.load import draft
from sweeps.results import importance, table, winner
from sweeps.space import Space, load_space
from sweeps.study import open_study, shown_name
from tests.makers import raises
from tests.sweeps.launching import make_space
from userrl.trials.sweep import best_recipe
from userrl_core.errors import ConfigError


def recipe_keys(model: type[BaseModel] = Recipe, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted key of a recipe with its type, also of blocks in lists, mappings and unions."""
    for name, field in model.model_fields.items():
        key = f"{path}{field.alias or name}"
        yield key, field.annotation
        for inner, place in inside(field.annotation):
            yield from recipe_keys(inner, f"{key}{place}")


def inside(annotation: Any, place: str = ".") -> Iterator[tuple[type[BaseModel], str]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, place
    in_list = get_origin(annotation) in (tuple, list)
    in_mapping = get_origin(annotation) is dict
    for part in get_args(annotation):
        yield from inside(part, f"{place}*." if in_list else f"{place}travel." if in_mapping else place)


def two_values(annotation: Any) -> list[Any]:
    """Two values of a type, as YAML has them."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return two_values(parts[0])
    if origin is Literal:
        return list(parts[:2]) if len(parts) > 1 else [parts[0], None]
    if origin in (Union, UnionType):
        values = two_values(next(part for part in parts if part is not NoneType))
        return [next(value for value in values if value is not None), None] if NoneType in parts else values
    if origin in (tuple, list):
        return [[two_values(parts[0])[0]], two_values(parts[0])]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = next(iter(annotation.model_fields.items()))
        return [{field[0]: value} for value in two_values(field[1].annotation)]
    plain: dict[Any, list[Any]] = {bool: [False, True], int: [1, 2], float: [0.25, 0.5], str: ["one", "two"]}
    return plain.get(annotation, [{"travel": 1}, {"travel": [2, "x", None]}])


OPTIONS = {key: two_values(annotation) for key, annotation in recipe_keys()}


def every_key() -> Space:
    parameters = {key: {"key": key, "options": options} for key, options in OPTIONS.items()}
    return make_space(parameters=parameters, sampler={"name": "random"}, confirm={"top": 0})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Space, Any]:
    """A study of every key, with a trial of each key's first value and one of its second, read again from its file."""
    folder, space = tmp_path_factory.mktemp("keys"), every_key()
    study = open_study(space, folder)
    for place in (0, 1):
        study.enqueue_trial({name: parameter.labels()[place] for name, parameter in space.parameters.items()})
        trial = study.ask()
        trial.set_user_attr("overrides", space.suggest(trial))
        study.tell(trial, float(place))
    return space, open_study(space, folder, queue=False)


def test_the_keys_are_those_of_the_schema() -> None:
    assert len(OPTIONS) > 200
    assert {"algorithm.betas", "stages.*.mix", "stages", "gyms.travel.config", "model.path", "schedule"} <= set(OPTIONS)
    faults = list(every_key().faults())
    # the space also has both a block and a key within it, of which a space may have one
    assert not [fault for fault in faults if "both set" not in fault]


@pytest.mark.parametrize("key", OPTIONS)
def test_a_key_is_suggested_stored_and_named(key: str, stored: tuple[Space, Any]) -> None:
    space, study = stored
    for value, trial in zip(OPTIONS[key], study.trials, strict=True):
        assert trial.user_attrs["overrides"][key] == value
        assert space.found(trial)[key] == value
        assert space.parameters[key].overrides(trial.params[key]) == {key: value}
        assert f"{key}=" in shown_name(trial)
    assert space.configuration({key: OPTIONS[key][0]}) != space.configuration({key: OPTIONS[key][1]})


@pytest.mark.parametrize("key", [key for key in OPTIONS if ".travel." not in key and "*" not in key])
def test_a_key_reaches_the_recipe_or_is_refused_in_a_sentence(key: str) -> None:
    with contextlib.suppress(ConfigError):
        assert draft("equalized-r2g", "laptop", {key: OPTIONS[key][0]}).merged.get(key) is not None


KINDS: dict[str, list[Any]] = {
    "algorithm.betas": [[0.9, 0.95], [0.9, 0.99]],
    "stages.*.mix": [{"travel": 1}, {"travel": 1, "function": 2}],
    "model.path": [None, "some/folder"],
    "allow_short_horizon": [True, False],
}


def test_parameters_of_every_type_are_ranked_and_listed(tmp_path: Path) -> None:
    parameters = {key: {"key": key, "options": options} for key, options in KINDS.items()}
    space = make_space(parameters=parameters, sampler={"name": "random"}, overrides={"credit.k": 2.0})
    study = open_study(space, tmp_path)
    for _ in range(12):
        trial = study.ask()
        overrides = space.suggest(trial)
        trial.set_user_attr("overrides", overrides)
        study.tell(trial, float(overrides["algorithm.betas"][1] == 0.99) + trial.number / 1000)
    study = open_study(space, tmp_path, queue=False)
    shares = importance(study)
    assert next(iter(shares)) == "algorithm.betas"
    assert shares["algorithm.betas"] > 0.9
    best = winner(space, study)
    assert best.chosen.keys() == KINDS.keys()
    assert best.overrides == {"credit.k": 2.0, **best.chosen}
    assert "algorithm.betas=[0.9, 0.99]" in best_recipe(space, best)
    assert "credit.k" not in best_recipe(space, best)
    assert json.dumps(table(space, study, at_work=False))


def test_a_long_value_is_cut_in_a_trial_s_name(tmp_path: Path) -> None:
    stages = [[{"steps": 1, "horizon": 4, "mix": {"travel": n}}] * 5 for n in (1, 2)]
    space = make_space(parameters={"stages": {"key": "stages", "options": stages}})
    name = shown_name(open_study(space, tmp_path).trials[0])
    assert len(name) == len("stages=") + 80
    assert name.endswith("…")


HEAD = {"name": "s", "source": "ours", "recipe": "equalized-r2g"}


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"low": 1, "high": 4, "step": 0.5, "integer": True}, "needs whole numbers, and step 0.5 is none"),
        ({"low": 0.5, "high": 4, "integer": True}, "needs whole numbers, and low 0.5 is none"),
        ({"low": 1, "high": 4.5, "integer": True}, "needs whole numbers, and high 4.5 is none"),
        ({"low": 1, "high": 4, "step": 5}, "step 5 is larger than the range from 1 to 4"),
        ({"low": 0, "high": 1, "step": 1e-9}, "more than 1,000,000 values"),
        ({"low": 0, "high": 1, "step": 0}, "greater than 0"),
        ({"low": 1, "high": 4, "step": 1, "log": True}, "needs low > 0 and no step"),
        ({"low": 0, "high": 4, "log": True}, "needs low > 0 and no step"),
        ({"low": 4, "high": 1}, "low 4 must be below high 1"),
        ({"low": 4, "high": 4}, "low 4 must be below high 4"),
        ({"low": float("nan"), "high": 4}, "finite number"),
        ({"low": 0, "high": float("inf")}, "finite number"),
        ({"low": 0, "high": 1, "options": [1]}, "unknown key"),
        ({"options": []}, "at least one value"),
        ({"options": {}}, "at least one value"),
        ({"options": [0.6, 0.8, 0.6]}, "options has 0.6 twice"),
        ({"options": [1, 1.0]}, "options has 1 twice"),
        ({"options": [None, None]}, "options has None twice"),
        ({"options": [[0.9, 1], [0.9, 1.0]]}, "options has [0.9, 1] twice"),
        ({"options": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}, 'options has {"a": 1, "b": 2} twice'),
        ({"key": None, "options": {"x": {"a": 1}, "y": {"a": 1}}}, 'options has {"a": 1} twice'),
        ({"options": [1, "1"]}, "options has a number and a text; give values of one type"),
        ({"options": [True, 1]}, "options has a number and a truth value"),
        ({"options": [[1], {"a": 1}]}, "options has a list and a mapping"),
        ({"options": [0.5, float("nan")]}, "option nan is no value of a recipe"),
        ({"options": [[float("-inf")]]}, "option [-inf] is no value of a recipe"),
        ({"options": [{1: 2, "a": 3}]}, "is no value of a recipe"),
    ],
)
def test_a_contradictory_parameter_is_refused_in_a_sentence(tmp_path: Path, fields: dict[str, Any], fact: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump({**HEAD, "parameters": {"g": {"key": "credit.gamma", **fields}}}))
    with pytest.raises(ConfigError) as caught:
        load_space(path)
    sentence = str(caught.value).partition("\n")[0]
    assert fact in sentence
    assert sentence.startswith("Sweep s.yaml: ")
    assert "parameters.g" in sentence or fact == "unknown key"


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"parameters": {n: {"key": "credit.gamma", "options": [n]} for n in "ab"}}, "both set credit.gamma"),
        (
            {"parameters": {"a": {"key": "x", "options": [1]}, "b": {"options": {"one": {"x": 2}}}}},
            "parameters a and b both set x",
        ),
        (
            {"parameters": {"a": {"key": "x.y", "options": [1]}, "b": {"key": "x", "options": [{"y": 2, "z": 3}]}}},
            "parameters a and b both set x.y",
        ),
        ({"sampler": {"name": "grid"}, "parameters": {"a": {"key": "x", "low": 0, "high": 1}}}, "finitely many"),
        ({"confirm": {"seeds": [101, 101]}}, "confirm.seeds has a seed twice"),
        ({"confirm": {"seeds": [1]}}, "confirm.seeds has 1, the seed of the trials"),
        ({"overrides": {"x": float("nan")}}, "overrides has a value"),
    ],
)
def test_a_contradictory_space_is_refused_in_a_sentence(tmp_path: Path, fields: dict[str, Any], fact: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump({**HEAD, "parameters": {"g": {"key": "credit.gamma", "options": [1]}}, **fields}))
    with raises("sweep.bad_space", "Sweep s.yaml: ", fact):
        load_space(path)


@pytest.mark.parametrize("options", [[0.5, 1], [None, 0.5], [True, False], ["a", None], [[1], [1, 2]], [[], [1]], [0]])
def test_options_of_one_type_are_taken(options: list[Any]) -> None:
    assert not list(make_space(parameters={"g": {"key": "credit.gamma", "options": options}}).faults())


def test_a_stored_space_with_contradictions_still_opens(tmp_path: Path) -> None:
    options = {"gamma": {"key": "credit.gamma", "options": [0.7, 0.7, 0.8]}}
    space = make_space(parameters=options)
    assert list(space.faults())
    assert len(open_study(space, tmp_path).get_trials(states=(TrialState.WAITING,))) == 2
