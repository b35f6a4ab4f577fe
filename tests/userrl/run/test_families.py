"""What a run evaluates beside its recipe's gyms, and what its report says was forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import curricula
from userrl.reports.write_report import forgotten_sentences
from userrl.run.families import other_families
from userrl.run.job import StageJob
from userrl.run.results import GymScore
from userrl_core.json_files import write_json

QUICK = ("equalized-r2g", "laptop-quick")


def made_by(root: Path, name: str, recipe: curricula.Recipe, init_from: Path | None = None) -> Path:
    """A run's folder; returns one of its checkpoints."""
    write_json(
        root / name / "run.json",
        {"id": name, "created": 0.0, "resolved": recipe.resolved(), "init_from": str(init_from) if init_from else None},
    )
    return root / name / "stages" / "rl-1" / "checkpoints" / "step-000003"


def seen(families: tuple[curricula.Recipe, ...]) -> dict[str, tuple[int, dict[str, Any]]]:
    return {r.evaluation_gyms[0]: (r.evaluate.horizon, r.gym(r.evaluation_gyms[0]).tasks) for r in families}


def test_a_run_evaluates_what_its_checkpoint_and_that_ones_ancestors_were_trained_on(tmp_path: Path) -> None:
    fork, travel = curricula.load("horizon-fork", "laptop"), curricula.load(*QUICK)
    first = made_by(tmp_path, "a", fork)
    second = made_by(tmp_path, "b", travel, init_from=first)
    expected = {"errand": (16, {"depths": [1, 2, 3]}), "wish": (16, {"sizes": [1, 2, 3, 4]})}
    assert seen(other_families(travel, str(first))) == expected
    assert seen(other_families(travel, str(second))) == expected
    assert seen(other_families(fork, str(second))) == {"travel": (6, {"tier": "tiny"})}
    [family] = other_families(fork, str(second))
    assert family.gym("travel").user.kind == "rule"
    assert family.algorithm.max_tokens == travel.algorithm.max_tokens > fork.algorithm.max_tokens
    assert family.model == fork.model


def test_a_gym_of_the_mix_that_the_evaluation_leaves_out_is_evaluated_too() -> None:
    recipe = curricula.load("horizon-fork", "laptop", {"evaluate.gyms": ["errand"]})
    assert list(seen(other_families(recipe, None))) == ["wish"]
    assert other_families(curricula.load("horizon-fork", "laptop"), None) == ()


def test_a_model_that_no_run_of_ours_made_and_a_circle_of_runs_have_no_past(tmp_path: Path) -> None:
    recipe = curricula.load("horizon-fork", "laptop")
    assert other_families(recipe, "Qwen/Qwen3-8B") == ()
    circle = made_by(tmp_path, "c", recipe)
    assert other_families(recipe, str(made_by(tmp_path, "c", recipe, init_from=circle))) == ()


def test_families_enter_an_evaluations_key_only_where_there_are_any(tmp_path: Path) -> None:
    recipe = curricula.load(*QUICK)

    def key(families: tuple[curricula.Recipe, ...]) -> str:
        return StageJob(
            kind="evaluate", stage="evaluate", run_id="r", folder=tmp_path, warehouse=tmp_path, recipe=recipe, families=families
        ).key  # fmt: skip

    others = other_families(recipe, str(made_by(tmp_path, "a", curricula.load("horizon-fork", "laptop"))))
    assert len({key(()), key(others[:1]), key(others)}) == 3


def test_a_job_with_families_has_one_key_before_and_after_it_was_written(tmp_path: Path) -> None:
    recipe = curricula.load(*QUICK)
    assert recipe.hash  # as a run's id has it computed, before anything is copied from the recipe
    job = StageJob(
        kind="evaluate",
        stage="evaluate",
        run_id="r",
        folder=tmp_path,
        warehouse=tmp_path,
        recipe=recipe,
        families=other_families(recipe, str(made_by(tmp_path, "a", curricula.load("horizon-fork", "laptop")))),
    )
    assert StageJob.read(job.write()).key == job.key


def test_a_report_says_which_gym_was_forgotten_by_whom_and_since_when() -> None:
    table = {
        "demonstrator": {"wish": GymScore(score=1.0, stderr=0.0)},
        "start": {"wish": GymScore(score=0.7, stderr=0.03), "errand": GymScore(score=0.1, stderr=0.03)},
        "SFT": {"wish": GymScore(score=0.65, stderr=0.03), "errand": GymScore(score=0.4, stderr=0.03)},
        "RL": {"wish": GymScore(score=0.6, stderr=0.04), "errand": GymScore(score=0.8, stderr=0.03)},
        "RL last step": {"wish": GymScore(score=0.0, stderr=0.0), "errand": GymScore(score=0.7, stderr=0.03)},
    }
    assert forgotten_sentences(table) == (
        "Forgetting at wish: RL last step scores 0.000 ± 0.000, start scored 0.700 ± 0.030.",
        "Forgetting at errand: RL last step scores 0.700 ± 0.030, RL scored 0.800 ± 0.030.",
    )
