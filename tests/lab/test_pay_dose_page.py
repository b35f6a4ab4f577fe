"""The dose-response's table, picture and predictions are those of its data."""

from __future__ import annotations

from typing import Any

import pytest

from curricula.claims import load_claim
from lab.pages import pay_dose
from lab.pages.claims import rows

PLANS = sorted(pay_dose.PLANS.glob("*.yaml"))


def runs(collapsed: int, of: int = 8) -> list[dict[str, Any]]:
    return [row("collapsed" if n < collapsed else "held", "ended", ".5") for n in range(of)]


def row(ending: str, state: str, score: str) -> dict[str, Any]:
    measured = ("best", "early", "cpu_seconds", "time_weighted", "tokens", "updates", "forgot")
    return {**dict.fromkeys(measured, ""), "arm": "a", "seed": 1, "ending": ending, "state": state, "score": score}


def test_the_page_is_that_of_the_data() -> None:
    page = pay_dose.PAGE.read_text()
    assert page == pay_dose.page(page)


@pytest.mark.skipif(not pay_dose.PICTURE.is_file(), reason="no run is finished")
def test_the_picture_is_that_of_the_data() -> None:
    assert pay_dose.PICTURE.read_text() == pay_dose.draw(rows(pay_dose.FOLDER / "runs.csv"))


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_a_plan_has_all_doses_and_changes_nothing_else_between_them(plan: Any) -> None:
    claim = load_claim(plan)
    assert list(claim.arms) == list(pay_dose.DOSES)
    pays = [list(arm.overrides.items()) for arm in claim.arms.values()]
    assert len({key for [(key, _)] in pays}) == 1
    assert [float(dose) for dose in pay_dose.DOSES.values()] == [value for [(_, value)] in pays]


@pytest.mark.parametrize(
    ("collapsed", "flip"),
    [
        ((8, 8, 4, 3, 0), ".1"),
        ((8, 0, 8, 0, 0), ".1"),
        ((4, 3, 3, 3, 3), ".01"),
        ((8, 8, 8, 8, 8), "above .3"),
        ((3, 0, 0, 0, 0), "–"),
    ],
)
def test_the_flip_is_the_dose_from_which_on_fewer_than_half_collapse(collapsed: tuple[int, ...], flip: str) -> None:
    arms = {arm: runs(count) for arm, count in zip(pay_dose.DOSES, collapsed, strict=True)}
    assert pay_dose.flip(arms) == flip
    assert pay_dose.flip({**arms, "dose-03": []}) == ""


def test_a_crashed_run_counts_as_collapsed_and_has_no_score() -> None:
    crashed = row("", "crashed", "")
    assert pay_dose.cell([crashed, *runs(0, 2)]) == "1 of 3, 0.50 ± 0.00"


def test_predictions_are_the_first_dose_at_zero_and_at_the_answers_advantage() -> None:
    search, answer = (-0.3, -0.2, -0.1, 0.0, 0.5), (0.1, -0.1, -0.1, 0.2, 0.2)
    expected = {
        (arm, kind): value
        for kind, values in (("search", search), ("answer", answer))
        for arm, value in zip(pay_dose.DOSES, values, strict=True)
    }
    assert pay_dose.predicted_flip(expected, "wish", None) == ".1"
    assert pay_dose.predicted_flip(expected, "wish", "answer") == ".03"
