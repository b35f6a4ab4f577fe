"""A sweep that is run again under its name: what its study refuses, what it takes, and what it has from earlier versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from optuna.trial import TrialState
from typer.testing import CliRunner

from flows.cli.training.sweep import app
from sweeps.identity import RECORD, compare_space, record_space
from sweeps.results import table, winner
from sweeps.space import Space, load_space
from sweeps.study import counted, open_study, queue_points
from tests.makers import raises
from tests.sweeps.launching import WritingLauncher, make_space, make_sweep
from userrl.machine.hashes import path_hash
from userrl.run.request import SweepRequest
from userrl.trials.sweep import SweepResult, content_of, open_sweep, run_sweep
from userrl_core.gyms import generate
from userrl_core.gyms.taskfile import write_tasks
from userrl_core.json_files import read_json, write_json

VALUES: dict[str, Any] = {
    "recipe": "equalized-r2g",
    "profile": "laptop-quick",
    "overrides": {"evaluate.tasks": 8},
    "parameters": {"gamma": {"key": "credit.gamma", "options": [0.6, 0.8]}},
    "budget": {"trials": 2},
    "sampler": {"name": "grid"},
    "confirm": {"seeds": [101]},
}
THREE = {"parameters": {"gamma": {"key": "credit.gamma", "options": [0.6, 0.8, 0.9]}}, "budget": {"trials": 3}}


def by_gamma(overrides: Mapping[str, Any]) -> float:
    return float(overrides["credit.gamma"])


class Home:
    """A home whose sweep ``s`` is run with changed fields. Its trials write a real warehouse and train nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, list[str]()
        self.launcher = WritingLauncher(folder / "warehouse", by_gamma, steps=1)

    def file(self, **changes: Any) -> str:
        path = self.folder / "s.yaml"
        path.write_text(yaml.safe_dump({**VALUES, **changes}))
        return str(path)

    def run(self, *, fresh: bool = False, **changes: Any) -> SweepResult:
        request = SweepRequest(space=self.file(**changes), poll_seconds=0, fresh=fresh)
        return run_sweep(request, lambda space, say: self.launcher, lambda text, *words: self.said.append(text % words))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    return Home(tmp_path)


def study_of(folder: Path, **fields: Any) -> tuple[Space, Any]:
    """A study of a space with its record, and no trial that ran."""
    space = make_space(**fields)
    study = open_study(space, folder, queue=False)
    record_space(space, study, None)
    queue_points(space, study)
    return space, study


def test_another_recipe_is_refused_until_it_is_fresh_and_a_third_option_of_the_grid_is_tried(home: Home) -> None:
    home.run()
    stored = read_json(home.folder / "sweeps/s/space.json")
    with raises("sweep.changed_space", "recipe: equalized-r2g, now naive-sum", "another name", "--fresh"):
        home.run(recipe="naive-sum")
    assert read_json(home.folder / "sweeps/s/space.json") == stored
    assert len(home.launcher.started) == 3
    ended = home.run(**THREE)
    assert [t.user_attrs["overrides"]["credit.gamma"] for t in counted(ended.study)] == [0.6, 0.8, 0.9]
    assert [row["params"] for row in table(ended.space, ended.study, at_work=False)] == [
        {"gamma": value} for value in (0.6, 0.8, 0.9)
    ]
    assert ended.best.chosen == {"credit.gamma": 0.9}
    assert "sweep s: Added to parameters.gamma: 0.9." in home.said
    with raises("sweep.changed_space", "sampler: grid, now tpe seed 0 startup 5"):
        home.run(**THREE, sampler={"name": "tpe"})
    assert len(open_sweep("s")[1].trials) == 3
    edition = home.run(recipe="naive-sum", fresh=True)
    assert (edition.space.name, edition.space.seed, edition.trials) == ("s.2", 2, 2)
    assert open_sweep("s.1")[0].recipe == "equalized-r2g"
    with raises("sweep.changed_space", "'s.2' was begun with another space: recipe: naive-sum, now equalized-r2g"):
        home.run()


def test_a_recipe_file_that_was_edited_in_place_is_another_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("extends: equalized-r2g\nname: mine\ncredit: {k: 1.0}\n")
    space, study = study_of(tmp_path, recipe=str(recipe))
    recipe.write_text("extends: equalized-r2g\nname: mine\ncredit: {k: 3.0}\n")
    with raises("sweep.changed_space", "recipe: content "):
        compare_space(space, study, None)


PUBLISHED = "gyms.errand.published"


def reading(file: Path) -> dict[str, Any]:
    """The overrides of trials on the tasks of a file."""
    return {"stages": [{"steps": 1, "horizon": 8, "mix": {"errand": 1}}], PUBLISHED: str(file)}


def test_other_content_of_what_trials_read_is_refused_and_named_until_it_is_fresh(home: Home) -> None:
    file = home.folder / "tasks.jsonl"
    write_tasks(file, generate("errand", 60, 1))
    old = path_hash(file)
    assert home.run(overrides=reading(file)).study.user_attrs[RECORD]["values"]["external"] == {PUBLISHED: [old]}
    assert home.run(overrides=reading(file)).trials == 2
    write_tasks(file, generate("errand", 60, 2))
    with raises("sweep.changed_space", f"content of {PUBLISHED}: {old[:12]}, now {path_hash(file)[:12]}", "--fresh"):
        home.run(overrides=reading(file))
    assert home.run(overrides=reading(file), fresh=True).space.name == "s.2"


@pytest.mark.parametrize("changes", [{}, THREE])
def test_content_that_changes_while_a_sweep_is_at_work_ends_it_before_the_next_run(
    home: Home, changes: dict[str, Any]
) -> None:
    file = home.folder / "tasks.jsonl"
    write_tasks(file, generate("errand", 60, 1))

    def edits(overrides: Mapping[str, Any]) -> float:
        write_tasks(file, generate("errand", 60, 2))
        return 0.5

    home.launcher.value = edits
    with raises("sweep.changed_space", f"content of {PUBLISHED}"):
        home.run(overrides=reading(file), **changes)
    assert len(home.launcher.started) == 2


def test_content_is_compared_with_what_was_recorded_under_the_same_name(tmp_path: Path) -> None:
    space, study = study_of(tmp_path)
    record = study.user_attrs[RECORD]
    del record["values"]["external"]
    study.set_user_attr(RECORD, record)  # as an earlier version wrote it
    for content in ({}, {"cold_start.data": ["a"]}, {"cold_start.data": ["a", "b"]}, {"gym coin": ["c"]}):
        assert record_space(space, study, None, content) == []
    recorded = {"cold_start.data": ["a", "b"], "gym coin": ["c"]}
    assert study.user_attrs[RECORD]["values"]["external"] == recorded
    with raises("sweep.changed_space", "content of cold_start.data: a, b, now b."):
        compare_space(space, study, None, {"cold_start.data": ["b"]})


def test_every_option_of_a_parameter_is_read(tmp_path: Path) -> None:
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for number, file in enumerate(files):
        write_tasks(file, generate("errand", 60, number))
    parameter = {"key": PUBLISHED, "options": [*map(str, files)]}
    space = make_space(profile="laptop-quick", overrides=reading(files[0]), parameters={"tasks": parameter})
    assert content_of(space) == {PUBLISHED: sorted(map(path_hash, files))}


TPE = {"sampler": {"name": "tpe"}}


@pytest.mark.parametrize(
    ("begun", "change", "fact"),
    [
        ({}, {"profile": "laptop-quick"}, "profile: laptop, now laptop-quick"),
        ({}, {"seed": 5}, "seed: 1, now 5"),
        ({}, {"overrides": {"credit.k": 3}}, "overrides.credit.k: absent, now 3"),
        ({"overrides": {"credit.k": 3}}, {}, "overrides.credit.k: 3, now absent"),
        ({}, {"objectives": [{"query": "effective_turns"}]}, "objectives: "),
        ({}, {"constraints": [{"query": "cost", "at_most": 1}]}, "constraints: "),
        ({}, {"pruning": {"percentile": 10}}, "pruning: absent, now percentile 10"),
        ({}, {"confirm": {"seeds": [102]}}, "confirm.seeds: [101, 102], now [102]"),
        (TPE, {"sampler": {"name": "tpe", "seed": 1}}, "sampler: tpe seed 0 startup 5, now tpe seed 1 startup 5"),
        (TPE, {**TPE, "parameters": {"gamma": {"key": "credit.gamma", "options": [0.6]}}}, "parameters.gamma: "),
        ({}, {"parameters": {"k": {"key": "credit.k", "options": [1]}}}, "parameters.k: absent, now credit.k [1]"),
        (
            {},
            {"parameters": {"gamma": {"key": "credit.k", "options": [0.6, 0.7, 0.8, 0.9, 1.0]}}},
            "parameters.gamma: credit.gamma [0.6, 0.7, 0.8, 0.9], now credit.k [0.6, 0.7, 0.8, 0.9, 1.0]",
        ),
        (
            {"parameters": {"b": {"options": {"x": {"credit.k": 1}}}}},
            {"parameters": {"b": {"options": {"x": {"credit.k": 2}}}}},
            'parameters.b: {"x": {"credit.k": 1}}, now {"x": {"credit.k": 2}}',
        ),
        ({}, {"parameters": {"gamma": {"key": "credit.gamma", "low": 0.6, "high": 0.9, "step": 0.1}}}, "kind range"),
    ],
)
def test_what_decides_the_results_cannot_change(
    tmp_path: Path, begun: dict[str, Any], change: dict[str, Any], fact: str
) -> None:
    _, study = study_of(tmp_path, **begun)
    with raises("sweep.changed_space", fact):
        compare_space(make_space(**change), study, None)


@pytest.mark.parametrize(
    ("change", "added"),
    [
        ({"budget": {"trials": 9, "hours": 1}, "retries": 0, "confirm": {"top": 2, "seeds": [101, 102]}}, []),
        ({"sampler": {"name": "grid", "seed": 9, "startup": 1}}, []),
        ({"source": "elsewhere", "pruning": {"enabled": False, "percentile": 10}}, []),
        ({"parameters": {"gamma": {"key": "credit.gamma", "options": [0.9, 0.8, 0.7, 0.6]}}}, []),
        ({"confirm": {"top": 1, "seeds": [101, 102, 103]}}, ["Added to confirm.seeds: 103."]),
        (
            {"parameters": {"gamma": {"key": "credit.gamma", "options": [0.5, 0.6, 0.7, 0.8, 0.9]}}},
            ["Added to parameters.gamma: 0.5.", "The budget of 4 trials leaves 1 points of the grid out."],
        ),
    ],
)
def test_what_leaves_the_results_as_they_are_is_taken(tmp_path: Path, change: dict[str, Any], added: list[str]) -> None:
    _, study = study_of(tmp_path)
    space = make_space(**change)
    before = study.user_attrs[RECORD]["hash"]
    assert record_space(space, study, None) == added
    assert (study.user_attrs[RECORD]["hash"] != before) == bool(added)
    queue_points(space, study)
    assert len(study.trials) == 4 + (added[0:1] == ["Added to parameters.gamma: 0.5."])


def play(space: Space, study: optuna.Study) -> list[dict[str, Any]]:
    """Ask for every queued trial, as the driver does, and give it a value."""
    played = []
    while study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        trial = study.ask()
        overrides = space.suggest(trial)
        trial.set_user_attr("configuration", space.configuration(overrides))
        trial.set_user_attr("overrides", overrides)
        study.tell(trial, float(trial.number))
        played.append(overrides)
    return played


def grid_of_each_kind(count: int) -> Space:
    """A grid of bundles, lists and whole numbers with count - 1, count - 1 and count values."""
    bundles = {f"b{n}": {"credit.k": float(n)} for n in range(1, count)}
    steps = {"key": "cold_start.steps", "low": 1, "high": count, "step": 1, "integer": True}
    betas = {"key": "algorithm.betas", "options": [[0.9, 0.9 + n / 100] for n in range(1, count)]}
    return make_space(parameters={"bundle": {"options": bundles}, "betas": betas, "steps": steps})


@pytest.mark.parametrize("address", [None, "sqlite:///{}/study.db"])
def test_a_grid_grows_in_each_storage_and_with_each_kind_of_parameter(tmp_path: Path, address: str | None) -> None:
    storage = address and address.format(tmp_path)
    small, large = grid_of_each_kind(2), grid_of_each_kind(3)
    study = open_study(small, tmp_path, storage)
    record_space(small, study, None)
    assert len(play(small, study)) == 2
    study = open_study(large, tmp_path, storage, queue=False)
    assert len(record_space(large, study, None)) == 4
    queue_points(large, study)
    added = play(large, study)
    assert len({json.dumps(overrides) for overrides in added}) == len(added) == 2 * 2 * 3 - 2
    best = winner(large, open_study(large, tmp_path, storage, queue=False))
    assert best.chosen == best.overrides == added[-1] == {
        "credit.k": 2.0, "algorithm.betas": [0.9, 0.92], "cold_start.steps": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({}, None),
        ({"parameters": {"gamma": {"key": "credit.gamma", "options": [0.6, 0.7, 0.8, 0.9, 1.0]}}}, None),
        ({"recipe": "naive-sum"}, "trial 0 ran with another recipe, profile or seed"),
        ({"seed": 7}, "trial 0 ran with another recipe, profile or seed"),
        ({"overrides": {"credit.k": 3}}, "trial 0 ran with credit.k=None"),
        ({"parameters": {"gamma": {"key": "credit.gamma", "options": [0.7, 0.8, 0.9]}}}, "trial 0 has gamma=0.6"),
        ({"parameters": {"gamma": {"key": "credit.k", "options": [0.6, 0.7, 0.8, 0.9]}}}, "trial 0 ran with credit.k="),
        ({"parameters": {"k": {"key": "credit.k", "options": [1.0]}}}, "trial 0 has gamma=0.6"),
        ({"objectives": [{"query": "cost", "direction": "minimize"}]}, "1 objective(s) or other directions"),
    ],
)
def test_a_study_of_an_earlier_version_is_compared_with_its_trials(
    tmp_path: Path, change: dict[str, Any], fact: str | None
) -> None:
    begun, space = make_space(), make_space(**change)
    study = open_study(begun, tmp_path)
    play(begun, study)
    if fact is None:
        assert "recorded no hash of its space" in record_space(space, study, begun)[0]
        assert record_space(space, study, begun) == []
        return
    with raises("sweep.changed_space", fact):  # a later start of that version may have stored the other space
        record_space(space, study, space)
    with raises("sweep.changed_space", f"'{space.name}' was begun with another space: ") as caught:
        record_space(space, study, begun)
    assert "now" in str(caught.value)
    assert RECORD not in study.user_attrs


def test_a_home_of_an_earlier_version_says_once_that_its_space_is_recorded(home: Home) -> None:
    space = load_space(home.file())
    folder = home.folder / "sweeps/s"
    make_sweep(space, home.folder, home.launcher).run()
    write_json(folder / "space.json", {"space": space.model_dump(mode="json"), "storage": None})
    home.run()
    assert sum("recorded no hash of its space" in sentence for sentence in home.said) == 1
    assert len(home.launcher.started) == 3


def test_the_command_says_what_it_would_run_and_does_nothing(home: Home) -> None:
    def said(path: str, *options: str) -> list[str]:
        done = CliRunner().invoke(app, ["run", path, "--dry-run", *options])
        assert done.exit_code == 0, done.output
        return [line.strip() for line in done.output.splitlines()]

    assert said(home.file()) == [
        "sweep s: recipe equalized-r2g, profile laptop-quick, seed 1",
        "0 trials done, 2 left; sampler grid; budget 2 trials",
        "trial: credit.gamma=0.6",
        "trial: credit.gamma=0.8",
        "then the best 1 again on seed 101",
    ]
    assert sorted(path.name for path in home.folder.iterdir()) == ["s.yaml"]
    home.run()
    before = {path: path.read_bytes() for path in (home.folder / "sweeps").rglob("*") if path.is_file()}
    assert said(home.file(**THREE))[1:4] == [
        "2 trials done, 1 left; sampler grid; budget 3 trials",
        "Added to parameters.gamma: 0.9.",
        "trial: credit.gamma=0.9",
    ]
    assert said(home.file(recipe="naive-sum"), "--fresh")[0].startswith("sweep s.2: recipe naive-sum")
    refused = CliRunner().invoke(app, ["run", home.file(recipe="naive-sum"), "--dry-run"])
    assert "was begun with another space" in str(refused.exception)
    assert {path: path.read_bytes() for path in (home.folder / "sweeps").rglob("*") if path.is_file()} == before


def test_a_misspelt_key_is_refused_before_it_uses_up_the_budget(home: Home) -> None:
    with raises("recipe.unknown_key", "Sweep s: no trial can run. ", "did you mean 'gamma'"):
        home.run(parameters={"gamma": {"key": "credit.gama", "options": [0.6, 0.8]}})
    with raises("recipe.bad_override", "Sweep s: no trial can run. "):
        home.run(overrides={"credit.gamma.x": 1})
    with raises("file.unknown_name", "Sweep s: no trial can run. ", "did you mean 'laptop'"):
        home.run(profile="laptp")
    with raises("file.missing", "Sweep s: no trial can run. ", "no/such.yaml"):
        home.run(recipe="no/such.yaml")
    assert sorted(path.name for path in home.folder.iterdir()) == ["s.yaml"]


def test_a_dry_run_names_a_trial_that_the_recipe_would_refuse(home: Home) -> None:
    options = {"gamma": {"key": "credit.gama", "options": [0.6, 0.8]}}
    done = CliRunner().invoke(app, ["run", home.file(parameters=options), "--dry-run"])
    assert done.output.count("credit.gama=0.6 (would be refused: ") == 1
    assert "did you mean 'gamma'" in done.output


def test_a_changed_recipe_that_only_the_overrides_complete_is_another_space(tmp_path: Path) -> None:
    def space(gamma: float) -> Space:
        values = {"credit": {"gamma": gamma, "k": 0}}  # k has to be above 0
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"name": "mine", "extends": "equalized-r2g", **values}))
        return make_space(recipe=str(tmp_path / "mine.yaml"), profile="laptop-quick", overrides={"credit.k": 2})

    study = open_study(space(0.9), tmp_path)
    record_space(space(0.9), study, None)
    assert compare_space(space(0.9), study, None) == []
    with raises("sweep.changed_space", "recipe: content "):
        compare_space(space(0.5), study, None)
