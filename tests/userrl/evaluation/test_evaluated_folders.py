"""Checkpoints of many runs lie in folders of the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.makers import raises
from tests.warehouse.makers import play
from userrl.evaluation.grid import Cell, _plot_data
from userrl.evaluation.planned import PlannedEvaluation, evaluate_here, plan_evaluation
from userrl.machine.slots import slots, take
from userrl.run.request import EvaluateRequest
from userrl.run.scores import ScoreRow
from warehouse import TurnLog


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    return tmp_path


def checkpoint(root: Path, weights: bytes) -> str:
    folder = root / "checkpoints" / "step-000098"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return str(folder)


def test_two_checkpoints_of_one_name_are_two_evaluations_and_one_in_two_places_is_one(here: Path) -> None:
    first, other, copied = (
        checkpoint(here / name, weights) for name, weights in [("a", b"1"), ("b", b"2"), ("c", b"1")]
    )
    planned = [plan_evaluation(EvaluateRequest(checkpoint=each, gyms=["errand"])) for each in (first, other, copied)]
    assert [each.actors[0].label for each in planned] == ["step-000098"] * 3
    ids = [each.plan.run_id for each in planned]
    assert ids[0] == ids[2] != ids[1]


def served(**options: object) -> PlannedEvaluation:
    model = {"model": "m", "base_url": "http://127.0.0.1:9/v1", **options}
    return plan_evaluation(EvaluateRequest(model=model, gyms=["wish"]))


def test_options_that_change_replies_make_another_evaluation_and_the_others_continue_it(here: Path) -> None:
    plain, patient, short = served(), served(timeout=300.0, retries=1), served(max_tokens=48)
    assert plain.plan.run_id == patient.plan.run_id != short.plan.run_id
    assert plain.actors[0].identity == patient.actors[0].identity != short.actors[0].identity
    named = plan_evaluation(EvaluateRequest(model="m", base_url="http://127.0.0.1:9/v1", gyms=["wish"]))
    assert named.plan.run_id == plain.plan.run_id


def test_options_of_a_served_model_name_it_and_have_one_address(here: Path) -> None:
    with raises("argument.missing", "name no model"):
        plan_evaluation(EvaluateRequest(model={"timeout": 300.0}, gyms=["wish"]))
    with raises("argument.conflict", "another base_url"):
        plan_evaluation(EvaluateRequest(model={"model": "m", "base_url": "http://a/v1"}, base_url="http://b/v1"))


def test_plot_data_is_of_the_checkpoint_that_is_meant_alone(here: Path) -> None:
    warehouse = here / "home" / "warehouse"
    with TurnLog.open(warehouse, "r1") as log:
        play(log, [1.0], phase="evaluate", score=1.0)  # of checkpoint c1
    request = EvaluateRequest(checkpoint="latest", gyms=["travel"])
    cell = Cell(request, "step-000098", start=False, trained_with="–", user="rule")
    row = ScoreRow(actor="step-000098", gym="travel", score=1.0, horizon=8)
    assert [line["mean_score"] for line in _plot_data(cell, "r1", [row], {"c1"})] == [1.0]
    assert list(_plot_data(cell, "r1", [row], {"another"})) == []


def test_an_evaluation_says_what_it_waits_for(here: Path) -> None:
    said: list[str] = []

    def say(text: str, *args: object) -> None:
        said.append(text % args)
        raise InterruptedError

    planned = plan_evaluation(EvaluateRequest(checkpoint=checkpoint(here / "a", b"1"), gyms=["errand"]))
    with take(here / "home" / "slots", len(slots()), slots()), pytest.raises(InterruptedError):
        evaluate_here(planned, say=say)
    assert said[0].startswith("evaluate: waits for a training slot and starts by itself; in use: ")
