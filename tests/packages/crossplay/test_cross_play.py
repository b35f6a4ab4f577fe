"""Cross-play studies: what a file must hold, its hash, and the report of played cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from curricula.claims.cross_play import load_cross_play
from curricula.spec import UserSetup
from flows.cli.main import app
from tests.makers import raises
from tests.packages.crossplay.played_study import SMALL, played, small_report, stored, talk, written
from tests.places import ROOT
from userrl_core.json_files import write_json
from userrl_crossplay.conversations import measures
from userrl_crossplay.document import cross_play_document, cross_play_picture
from userrl_crossplay.report import START, CrossPlayReport, report_of
from userrl_crossplay.stored import note_evaluations, stored_studies, stored_study
from userrl_crossplay.study import measured
from warehouse import open_warehouse

STUDY = ROOT / "lab" / "studies" / "user_populations.yaml"


def test_the_arms_are_the_training_populations_with_the_same_demonstrations(tmp_path: Path) -> None:
    study = load_cross_play(written(tmp_path))
    recipes = {name: study.recipe_of(arm) for name, arm in study.arms.items()}
    assert {name: recipe.gym("wish").user.population for name, recipe in recipes.items()} == SMALL["train"]
    assert all(recipe.demonstrations.user == UserSetup() for recipe in recipes.values())
    assert (study.own, study.shifted, study.unseen) == ({"plain": "plain"}, ("shifted",), ("shifted", "slips"))
    assert study.contrasted == ("shifted", "slips")


def test_a_changed_population_changes_the_hash(tmp_path: Path) -> None:
    first = load_cross_play(written(tmp_path)).hash
    evaluate = {**SMALL["evaluate"], "slips": {"like": "slips", "users": 3}}
    assert load_cross_play(written(tmp_path, evaluate=evaluate)).hash != first
    assert load_cross_play(written(tmp_path)).hash == first


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({"evaluate": {"plain": "plain", "slips": "slips"}}, "shifted"),
        ({"evaluate": {"plain": "plain", "shifted": "shifted"}}, "besides the shifted one"),
        ({"outside": ["nobody"]}, "nobody"),
        ({"further": [["wide", "nobody"]]}, "nobody"),
        ({"mix": {"wish": 1, "errand": 1}}, "exactly one gym"),
        ({"overrides": [1]}, "overrides needs keys with values"),
    ],
)
def test_a_study_without_a_compulsory_column_is_refused(tmp_path: Path, changed: dict[str, Any], fact: str) -> None:
    with raises("claim.bad_file", fact):
        load_cross_play(written(tmp_path, **changed))


@pytest.mark.parametrize("name", ["../../x", "a/b", "", ".."])
def test_the_name_of_a_study_or_claim_is_no_way_out_of_its_folder(tmp_path: Path, name: str) -> None:
    with raises("recipe.invalid_value", "name: give a name of one line without '/'"):
        load_cross_play(written(tmp_path, name=name))


def test_an_unknown_population_or_file_is_refused(tmp_path: Path) -> None:
    with raises("user.bad_option", "wid"):
        load_cross_play(written(tmp_path, train={"plain": "plain", "wide": "wid"}))
    with raises("file.missing"):
        load_cross_play(tmp_path / "nothing.yaml")


def test_the_registered_study_has_the_designed_columns() -> None:
    study = load_cross_play(STUDY)
    assert tuple(study.train) == ("plain", "vague", "both", "wide")
    assert tuple(study.evaluate) == ("plain", "both", "inside", "shifted", "slips")
    assert (study.seeds, study.contrasts[0], study.contrasted) == (16, ("wide", "plain"), ("shifted", "slips"))
    shown = CliRunner().invoke(app, ["cross-play", str(STUDY), "--list"])
    assert "64 runs, 400 evaluations of 400 tasks" in shown.output
    assert study.hash in shown.output


def test_the_documentation_has_the_numbers_of_the_committed_study() -> None:
    committed = json.loads((ROOT / "data" / "users" / "user_populations.json").read_text())
    report = report_of(load_cross_play(STUDY), committed)
    assert (report.complete, committed["hash"]) == (True, load_cross_play(STUDY).hash)
    page = (ROOT / "data" / "users" / "README.md").read_text()
    for row, cells in {**committed["cells"], "cold start": committed["cold_start"]}.items():
        shown = (f"{cell['estimate']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]" for cell in cells.values())
        assert f"| {row} | {' | '.join(shown)} |".replace("0.", ".") in page
    contrast, users = committed["contrasts"][0], committed["over_users"]
    assert f"{-contrast['estimate']:.3f} [{-contrast['high']:.3f}, {-contrast['low']:.3f}]".replace("0.", ".") in page
    assert f"[{-users['high']:.3f}, {-users['low']:.3f}]".replace("0.", ".") in page
    assert "Primary contrast" in cross_play_document(report).text()


def test_a_right_answer_with_something_untold_is_lucky() -> None:
    found = measures([talk(0, 1.0), talk(1, 1.0, told=1), talk(2, 0.0, told=1), talk(3, 0.0)])
    assert (found.success, found.grounded, found.lucky, found.early, found.questions) == (0.5, 0.25, 0.25, 0.5, 3.0)
    assert found.compliance is None


def test_the_report_has_the_matrix_the_contrast_and_a_picture(tmp_path: Path) -> None:
    study = load_cross_play(written(tmp_path))
    report = small_report(study)
    found = report.as_json()
    assert found["complete"]
    assert found["gains"]["wide"]["slips"]["estimate"] == pytest.approx(0.3)
    assert found["contrasts"][0]["estimate"] == pytest.approx(0.3)
    assert found["over_users"]["estimate"] == pytest.approx(0.3)
    assert cross_play_picture(report).startswith("<svg")
    assert "<image" not in cross_play_picture(report)  # the page's security policy blocks embedded images
    text = cross_play_document(report).text()
    assert "Primary contrast" in text
    assert "slips (unseen trait)" in text


def test_a_setting_in_which_the_evaluations_of_a_seed_differ_is_named(tmp_path: Path) -> None:
    study = load_cross_play(written(tmp_path))
    cells = played(study, {(row, column): 0.5 for row in study.train for column in study.evaluate})

    def report(**of_one: Any) -> CrossPlayReport:
        protocols: dict[Any, dict[str, Any]] = {
            key: {"user_behaviour": key[2], "tasks": str(key[0]), "agent_prompt": "brief 0"} for key in cells
        }
        protocols[901, "wide", "shifted"] |= of_one
        return measured(study, cells, "", protocols)

    assert report().differing == report(agent_prompt=None).differing == ()
    changed = report(agent_prompt="brief 1")
    assert changed.differing == ("agent prompt",)
    assert "The evaluations do not differ in their users alone (agent prompt)" in cross_play_document(changed).text()
    assert report_of(study, json.loads(json.dumps(changed.as_json()))).differing == ("agent prompt",)


def test_a_seed_with_a_missing_cell_does_not_count(tmp_path: Path) -> None:
    study = load_cross_play(written(tmp_path))
    cells = played(study, {(row, column): 0.5 for row in study.train for column in study.evaluate})
    del cells[902, "wide", "slips"]
    report = measured(study, cells, "")
    assert report.matrix.seeds == 3
    assert not report.complete
    assert "3 of 4 seeds; no verdict" in cross_play_document(report).text()
    with raises("compare.no_evaluation"):
        measured(study, {}, "")


@pytest.mark.parametrize("seeds", [2, 4])
def test_stored_results_are_read_back_and_print_the_same_report(tmp_path: Path, seeds: int) -> None:
    study = load_cross_play(written(tmp_path))
    scores = {(row, column): 0.1 * n for n, row in enumerate((START, *study.train)) for column in study.evaluate}
    report = measured(study, played(study, scores, seeds), "changed")
    read = report_of(study, json.loads(json.dumps(report.as_json())))
    assert cross_play_document(read).text() == cross_play_document(report).text()
    assert cross_play_picture(read) == cross_play_picture(report)
    assert read.as_json() == report.as_json()
    assert ("too few seeds for limits." in cross_play_document(read).text()) == (seeds == 2)


@pytest.mark.parametrize("damaged", [{}, {"seeds": 4, "cells": []}, {"seeds": "many"}])
def test_damaged_results_are_refused_in_a_sentence(tmp_path: Path, damaged: dict[str, Any]) -> None:
    with raises("claim.bad_result", "cannot be read"):
        report_of(load_cross_play(written(tmp_path)), damaged)


def test_a_study_of_a_home_says_how_far_it_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    study = load_cross_play(written(tmp_path))
    stored(tmp_path, study, ended=5)
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        [found] = stored_studies(warehouse)
        assert (found.progress, found.finished, found.report()) == ("5 of 8 runs ended, 1 started", False, None)
        note_evaluations(study.name, study.hash, 4, 36)
        found = stored_study(warehouse, "small")
        assert found.progress == "5 of 8 runs ended, 1 started; 4 of 36 evaluations"
        write_json(tmp_path / "claims" / "small" / f"{study.hash}.json", small_report(study).as_json())
        assert stored_study(warehouse, "small").finished
        read = stored_study(warehouse, "small").report()
        assert read is not None
        assert (read.study, read.hash) == (study, study.hash)
        with raises("claim.no_such_study", "No cross-play study '../small'"):
            stored_study(warehouse, "../small")
