"""A run that collapsed is said to have: the rule over recorded validations, the event, the report, the list of runs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.measure.collapse import Fall, ValidationScores, fallen
from curricula import load
from userrl.reports.run_report import RunReport
from userrl.reports.run_summary import run_summary
from userrl.run.alarms import alarm_rules, fell, sounded
from userrl.run.ending import last_step
from userrl.run.job import Inputs
from userrl.run.listed import validation_scores
from userrl.run.plan import actors
from userrl.run.results import TrainResult

TASKS = 64


def curve(*means: float, every: int = 10) -> list[ValidationScores]:
    """Validations of 64 tasks that score 0 or 1, each failing on tasks of its own draw."""
    history = []
    for number, mean in enumerate(means):
        order = random.Random(number).sample(range(TASKS), TASKS)
        right = set(order[: round(mean * TASKS)])
        history.append(ValidationScores(number * every, {f"travel/{n}": float(n in right) for n in range(TASKS)}))
    return history


NAIVE_SUM = (1.0, 0.76, 1.0, 0.39, 0.20, 0.20, 0.20)
"""`make run` of naive-sum, seed 0, as it was validated every ten steps."""


def test_the_recorded_collapse_of_naive_sum_is_heard_at_the_second_low_validation() -> None:
    fall = fallen(curve(*NAIVE_SUM))
    assert fall is not None
    assert (fall.step, fall.reference) == (40, 1.0)
    assert fall.score == pytest.approx(0.2, abs=0.01)
    assert fall.bound == pytest.approx(1.0 - 3 * (0.8 * 0.2 / 63) ** 0.5, abs=0.01)
    assert fallen(curve(*NAIVE_SUM[:4])) is None


@pytest.mark.parametrize(
    "means",
    [
        (1.0, 0.88, 1.0, 0.88, 0.88, 1.0, 0.88),  # a swing of .12, as of runs that did not collapse
        (0.99, 0.96, 0.97, 0.99, 0.99, 0.97),
        (1.0, 1.0, 1.0, 0.2, 1.0, 1.0, 0.3),  # never two in a row
        (0.2, 0.4, 0.6, 0.8, 0.9),
        (0.97, 0.2, 0.2),  # one good validation proves as little as one bad one
        (0.3, 0.3, 0.3, 0.3),
        (),
    ],
)
def test_what_swings_rises_or_was_good_but_once_is_no_collapse(means: tuple[float, ...]) -> None:
    assert fallen(curve(*means)) is None


def test_the_same_fall_on_the_same_tasks_counts_where_it_is_certain() -> None:
    """Scores that all fall by .15 have no spread at all: the least fall decides."""
    before = ValidationScores(0, {f"t{n}": 0.5 for n in range(8)})
    low = [ValidationScores(step, {f"t{n}": 0.35 for n in range(8)}) for step in (30, 40)]
    history = [before, ValidationScores(10, before.scores), ValidationScores(20, before.scores), *low]
    assert fallen(history) == Fall(40, pytest.approx(0.35), 0.5, 0.4)
    assert fallen(history, smallest_fall=0.2) is None


@given(st.lists(st.floats(0.9, 1.0), min_size=4, max_size=12))
def test_validations_within_a_tenth_of_each_other_are_never_a_fall(means: list[float]) -> None:
    assert fallen([ValidationScores(i, {"a": mean, "b": mean}) for i, mean in enumerate(means)]) is None


def test_the_alarm_says_it_in_a_sentence_and_a_recipe_may_stop_on_it_or_turn_it_off() -> None:
    history = curve(*NAIVE_SUM)
    (alarm,) = fell(history, alarm_rules({"validation_fell": "stop"}))
    assert (alarm.name, alarm.step, alarm.action) == ("validation_fell", 40, "stop")
    assert alarm.sentence().startswith("Alarm validation_fell at step 40: two validations in a row are far below")
    assert fell(history, alarm_rules({"validation_fell": False})) == []


def result(step: int, best: int, score: float, path: str = "last") -> TrainResult:
    chosen = {"path": "best" if best != step else path, "id": "b", "step": best, "score": score}
    return TrainResult(checkpoint=Path(path), sha256="s", id="l", step=step, best=chosen)


def test_the_last_step_is_evaluated_beside_the_best_checkpoint() -> None:
    recipe = load("naive-sum", "laptop", check=False)
    labels = [(actor.label, actor.step, actor.path) for actor in actors(recipe, Inputs(rl=result(60, 20, 1.0)))]
    assert labels == [("RL", 20, "best"), (last_step("RL"), 60, "last")]
    assert [actor.label for actor in actors(recipe, Inputs(rl=result(60, 60, 1.0)))] == ["RL"]


def test_a_report_without_a_card_says_the_alarm_and_what_was_replaced() -> None:
    page = run_summary(
        RunReport(
            run="r",
            recipe="naive-sum",
            profile="laptop",
            seed=0,
            alarms=("Alarm validation_fell at step 40: it fell.",),
            replaced=("algorithm.lr: 1 (recipe a) -> 2 (profile b)",),
            warehouse="w",
            folder="f",
        )
    ).markdown()
    assert "**Alarm validation_fell at step 40: it fell.**" in page
    assert "## Replaced values\n\n- algorithm.lr: 1 (recipe a) -> 2 (profile b)" in page


def test_the_list_of_runs_knows_the_best_and_the_last_validation(tmp_path: Path) -> None:
    for stage, scores in (("rl-1", [(10, 0.5), (20, 0.9)]), ("rl-10", [(100, 0.2)]), ("rl-2", [(30, 0.7)])):
        folder = tmp_path / "stages" / stage
        folder.mkdir(parents=True)
        lines = [json.dumps({"step": step, "validate/score/mean": score}) for step, score in scores]
        (folder / "progress.jsonl").write_text("\n".join([*lines, json.dumps({"step": 31}), ""]))
    assert validation_scores(tmp_path) == (0.9, 0.2)
    assert validation_scores(tmp_path / "none") == (None, None)
    assert sounded(tmp_path) == []
