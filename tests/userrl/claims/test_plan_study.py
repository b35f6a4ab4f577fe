"""The cost of a study before it starts, against what the published runs took."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from statistics import fmean

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from curricula.claims import load_claim
from flows.cli.main import app
from tests.makers import raises
from tests.places import ROOT
from userrl.claims.plan_study import Phase, StudyPlan, in_total, plan_studies, plan_study
from userrl.run.estimate import RunCost, run_cost
from userrl.run.readiness import resolve


def within(predicted: list[float], actual: list[float], factor: float) -> float:
    """Share of the predictions that are within the factor."""
    return sum(1 / factor <= p / a <= factor for p, a in zip(predicted, actual, strict=True)) / len(actual)


def cost(seconds: float) -> RunCost:
    return RunCost(seconds, seconds, 0.0, 1.0, 1.0, 1.0)


def test_every_published_arm_took_its_predicted_cpu_seconds_within_a_factor_of_one_and_a_half() -> None:
    predicted, actual = [], []
    with (ROOT / "data" / "claims" / "published_arms.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            claim = load_claim(row["claim"]).as_published
            expected = run_cost(claim.recipe_of(claim.arms[row["arm"]]))
            assert expected is not None
            assert expected.tokens == pytest.approx(claim.tokens, rel=0.01)
            predicted.append(expected.cpu_seconds)
            actual.append(float(row["cpu_seconds_a_run"]))
    assert len(actual) == 55
    assert within(predicted, actual, 1.5) == 1.0


def test_four_of_five_recipes_took_their_predicted_cpu_seconds_within_a_factor_of_one_and_a_half() -> None:
    by_recipe: dict[str, list[float]] = {}
    with (ROOT / "data" / "recipes" / "runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            by_recipe.setdefault(row["recipe"], []).append(float(row["cpu_seconds"]))
    costs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, seconds in by_recipe.items():
            if (expected := run_cost(resolve(name, check=False))) is not None:
                costs.append((expected.cpu_seconds, fmean(seconds)))
    predicted, actual = map(list, zip(*costs, strict=True))
    assert within(predicted, actual, 1.5) > 0.8
    assert within(predicted, actual, 2.0) > 0.9


def test_runs_that_two_claims_share_are_planned_once() -> None:
    plans = plan_studies(["r2g-above-sum", "r2g-more-efficient"], seeds=8)
    assert [(plan.runs, plan.shared) for plan in plans] == [(24, 0), (0, 24)]
    assert plans[1].seconds(2) == 0.0
    assert in_total(plans).total("tokens") == plans[0].total("tokens") == 24 * 98 * 4096


def test_a_cross_play_study_plays_its_evaluations_after_its_runs() -> None:
    (plan,) = plan_studies([str(ROOT / "lab" / "studies" / "user_populations.yaml")])
    runs, evaluations = plan.phases
    assert (len(runs.costs), len(evaluations.costs)) == (16 * 4, 16 * (4 + 1) * 5)
    assert plan.seconds(4) == pytest.approx(runs.seconds(4) + evaluations.seconds(1))


def test_a_sweep_has_the_points_of_its_grid_and_the_confirmation() -> None:
    (plan,) = plan_studies(["gamma"])
    assert [(phase.name, len(phase.costs)) for phase in plan.phases] == [("trials", 4), ("confirmation", 3)]
    assert plan.runs == 7


def test_a_study_on_gpus_has_gpu_hours_of_its_profile(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    arms = {name: {"overrides": {"credit.score": name}} for name in ("r2g", "mean")}
    claim = {
        "kind": "open question", "paper": "ours", "text": "At full size.", "profile": "qwen3-8b", "arms": arms,
        "contrast": {"more": "r2g", "than": "mean"},
        "overrides": {"stages": [{"steps": 100, "mix": {"errand": 1}}]},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(claim))
    (plan,) = plan_studies([str(path)], seeds=2)
    (phase,) = plan.phases
    assert (plan.runs, plan.total("cpu_seconds")) == (4, 0.0)
    assert plan.total("gpu_seconds") == pytest.approx(8 * plan.total("seconds"))
    assert plan.critical == pytest.approx(phase.costs[0].seconds)
    assert plan.seconds(2) == pytest.approx(2 * plan.critical)


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=12), st.integers(1, 6))
def test_the_time_on_workers_is_within_the_bounds_of_any_schedule(seconds: list[float], workers: int) -> None:
    phase = Phase("runs", tuple(cost(each) for each in seconds))
    took, longest = phase.seconds(workers), max(seconds)
    assert took >= max(longest, sum(seconds) / workers) * (1 - 1e-9)
    assert took <= (sum(seconds) / workers + longest) * (1 + 1e-9)
    assert StudyPlan("s", len(seconds), 0, (phase,)).critical == pytest.approx(longest)


def test_the_command_prints_every_study_and_the_total_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["plan-study", "gamma", "short-plateaus", "--workers", "4"])
    assert shown.exit_code == 0
    assert shown.stdout.strip() == str(plan_study("gamma", "short-plateaus", workers=4)).strip()
    assert [line.split("|")[1].strip() for line in shown.stdout.splitlines() if line.startswith("| ")][2:] == [
        "gamma", "short-plateaus", "total",
    ]  # fmt: skip


def test_an_unknown_study_is_named_with_the_nearest_one() -> None:
    with raises("claim.no_such_study", "short-plateaus"):
        plan_studies(["short-plateau"])


def test_a_model_of_unknown_size_is_refused_in_a_sentence(tmp_path: Path) -> None:
    arms = {name: {"overrides": {"credit.score": name, "model.path": "someone/unknown"}} for name in ("r2g", "mean")}
    claim = {
        "kind": "open question", "paper": "ours", "text": "Unknown.", "arms": arms,
        "contrast": {"more": "r2g", "than": "mean"},
    }  # fmt: skip
    (tmp_path / "unknown.yaml").write_text(yaml.safe_dump(claim))
    with raises("claim.unknown_cost", "someone/unknown"):
        plan_studies([str(tmp_path / "unknown.yaml")])
