"""Cross-play studies: what a file must hold, its hash, and the report of played cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from curricula.claims.cross_play import CrossPlay, load_cross_play
from curricula.spec import UserSetup
from flows.cli.main import app
from tests.makers import raises
from userrl.audits.cross_play import START, PlayedCell, measured
from userrl.audits.cross_play_document import cross_play_document
from userrl.audits.user_conversations import UserConversation, measures

STUDY = Path(__file__).parents[2] / "studies" / "user_populations.yaml"
SMALL: dict[str, Any] = {
    "kind": "open question",
    "paper": "ours",
    "text": "A small study.",
    "mix": {"wish": 1},
    "train": {"plain": "plain", "wide": "wide"},
    "evaluate": {"plain": {"like": "plain", "users": 2}, "shifted": "shifted", "slips": {"like": "slips", "users": 2}},
    "contrast": {"more": "wide", "than": "plain"},
    "seeds": 4,
    "first_seed": 901,
}


def written(folder: Path, **changed: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changed}))
    return path


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
    ],
)
def test_a_study_without_a_compulsory_column_is_refused(tmp_path: Path, changed: dict[str, Any], fact: str) -> None:
    with raises("claim.bad_file", fact):
        load_cross_play(written(tmp_path, **changed))


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


def talk(number: int, score: float, told: int = 2) -> UserConversation:
    return UserConversation(f"t{number}", number % 2, score, 5, told, 2, 5, (1, 2, 3))


def test_a_right_answer_with_something_untold_is_lucky() -> None:
    found = measures([talk(0, 1.0), talk(1, 1.0, told=1), talk(2, 0.0, told=1), talk(3, 0.0)])
    assert (found.success, found.grounded, found.lucky, found.early, found.questions) == (0.5, 0.25, 0.25, 0.5, 3.0)
    assert found.compliance is None


def played(
    study: CrossPlay, scores: dict[tuple[str, str], float], seeds: int = 4
) -> dict[tuple[int, str, str], PlayedCell]:
    cells = [
        PlayedCell(seed, row, column, tuple(talk(n, float(n < 10 * share + seed % 2)) for n in range(10)))
        for seed in range(901, 901 + seeds)
        for (row, column), share in scores.items()
    ]
    return {cell.key: cell for cell in cells}


def test_the_report_has_the_matrix_the_contrast_and_a_picture(tmp_path: Path) -> None:
    study = load_cross_play(written(tmp_path))
    scores = {(row, column): 0.3 for row in (START, "plain") for column in study.evaluate}
    scores |= {("wide", column): 0.6 for column in study.evaluate}
    report = measured(study, played(study, scores), "")
    found = report.as_json()
    assert found["complete"]
    assert found["gains"]["wide"]["slips"]["estimate"] == pytest.approx(0.3)
    assert found["contrasts"][0]["estimate"] == pytest.approx(0.3)
    assert found["over_users"]["estimate"] == pytest.approx(0.3)
    assert report.picture().startswith("<svg")
    assert "<image" not in report.picture()  # the page's security policy blocks embedded images
    text = cross_play_document(report).text()
    assert "Primary contrast" in text
    assert "slips (unseen trait)" in text


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
