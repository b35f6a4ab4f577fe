"""Each recipe that a laptop runs, from demonstrations to the report, with two steps a stage.

`make test-slow` runs one of each kind, `make test-full` all.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import curricula
from tests.userrl.run.test_all_recipes import OF_OUR_OWN
from userrl.reports.run_report import RunReport
from userrl.reports.write_report import write_report
from userrl.run.job import Inputs
from userrl.run.plan import iterations, plan_run
from userrl.run.request import TrainRequest
from userrl.worker.main import run as work
from userrl_core.gyms.registry import unavailable
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SMALL: dict[str, Any] = {
    "demonstrations.episodes": 60,
    "demonstrations.top_k": 40,
    "cold_start.steps": 3,
    "cold_start.batch": 8,
    "algorithm.batch": 2,
    "evaluate.every": 2,
    "evaluate.tasks": 3,
    "evaluate.validation_tasks": 4,
}

FEW_EPISODES: dict[str, Any] = {
    "demonstrations.episodes": 6,
    "demonstrations.top_k": 4,
    "cold_start.batch": 2,
    "algorithm.batch": 1,
    "algorithm.group": 2,
    "evaluate.tasks": 1,
    "evaluate.validation_tasks": 1,
}

ALIKE = {
    "agentevol": "test_agentevol",
    "em-r2g-no-sft": "equalized-r2g-no-sft",
    "equalized-r2g": "em-r2g",
    "equalized-sum": "em-r2g",
    "fixed-babyai": "scaling-inter-babyai",
    "fixed-sciworld": "scaling-inter-sciworld",
    "fixed-textcraft": "fixed-searchqa",
    "fixed-webarena": "scaling-inter-webarena",
    "grpo": "tarl",
    "grpo-vs-reinforce-babyai": "grpo-vs-reinforce",
    "grpo-vs-reinforce-searchqa": "grpo-vs-reinforce",
    "horizon-fork": "test_fork",
    "naive-sum": "em-r2g",
    "ppo": "ppo-per-turn",
    "reinforce-pp": "grpo-vs-reinforce",
    "scaling-inter": "scaling-inter-babyai",
    "scaling-inter-babyai-paper": "scaling-inter-babyai",
    "scaling-inter-sciworld-paper": "scaling-inter-sciworld",
    "scaling-inter-searchqa": "scaling-inter-babyai",
    "scaling-inter-searchqa-paper": "scaling-inter-babyai",
    "scaling-inter-textcraft": "scaling-inter-babyai",
    "scaling-inter-textcraft-paper": "scaling-inter-babyai",
    "scaling-inter-webarena-paper": "scaling-inter-webarena",
    "sft-agentgym-babyai": "sft-agentgym",
    "sft-agentgym-searchqa": "sft-agentgym",
    "tarl-entropy-mask": "grpo-entropy-mask",
    "tarl-neither": "tarl",
    "tarl-no-judge": "tarl",
    "tarl-no-math": "grpo-entropy-mask",
    "tarl-ppo": "ppo-per-turn",
    "tarl-ppo-turn": "ppo-per-turn",
    "tarl-v2": "tarl",
    "warm-up": "tarl-warm-up",
}
"""Recipes without a gym, algorithm, schedule, credit or judge that no recipe of `make test-slow` has: one that is like each."""

RECIPES = [
    pytest.param(name, marks=[pytest.mark.full] if name in ALIKE else []) for name in sorted(curricula.recipe_names())
]

STEP_TOKENS = 400


def two_steps_a_stage(name: str) -> dict[str, Any]:
    """The recipe's own stages and schedule, two steps long each."""
    recipe = curricula.load(name, "laptop", check=False)
    schedule = recipe.resolved()["schedule"]
    by_tokens = bool(recipe.stages) and recipe.stages[0].tokens is not None
    unit, step = ("tokens", STEP_TOKENS) if by_tokens else ("steps", 1)
    small = SMALL | ({"algorithm.batch_tokens": STEP_TOKENS} if by_tokens else {})
    if recipe.evolve is not None:
        small |= {"evolve.iterations": 2, "evolve.tasks": 30}
    if "sciworld" in name or "webarena" in name:  # a turn takes the simulator or the browser its time
        small |= FEW_EPISODES
    if schedule and schedule["kind"] == "scaling_inter":
        return small | {"schedule.every": 2, f"stages.0.{unit}": 2 * step * len(recipe.planned_stages)}
    if schedule and schedule["kind"] == "adaptive":
        return small | {"schedule.gate.at_most": 2, f"stages.0.{unit}": 2 * step * len(schedule["horizons"])}
    ways = ["stages", *(f"branches.{branch}" for branch in recipe.branches)]
    return small | {f"{way}.*.{unit}": 2 * step for way in ways}


def whole(request: TrainRequest) -> RunReport:
    """Every stage of a run in this process, as `flows.train` does them one after the other."""
    plan = plan_run(request)
    with plan.begin() as run:

        def do(stage: str, **inputs: Any) -> Any:
            job = plan.job(run, stage, Inputs(**inputs))
            work(job)
            return job.result()

        shown = do("distill")
        cold = do("sft", distill=shown)
        newest = cold if plan.rl_stages() else None
        for stage in plan.rl_stages():
            newest = do(stage, before=newest, distill=shown, reference=cold)
        ends = {}
        for branch in plan.recipe.branches:
            ends[branch] = newest
            for stage in plan.rl_stages(branch):
                ends[branch] = do(stage, before=ends[branch], distill=shown, reference=cold)
        sampler, known = cold, shown
        for number in iterations(plan.recipe):
            known = do(f"explore-{number}", before=sampler, distill=known)
            sampler = do(f"sft-{number}", distill=known)
            ends[f"evolved-{number}"] = sampler
        scores = do("evaluate", distill=shown, sft=cold, rl=newest, ends=ends)
        return write_report(plan, run, demonstrations=shown, newest=newest, ends=ends, scores=scores)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    monkeypatch.setenv("USERRL_THREADS", "1")
    return tmp_path


@pytest.mark.parametrize("name", RECIPES)
def test_a_laptop_recipe_runs_to_its_report_on_the_gym_that_its_name_says(name: str, home: Path) -> None:
    if missing := [
        reason for gym in curricula.load(name, "laptop", check=False).training_gyms if (reason := unavailable(gym))
    ]:
        pytest.skip(missing[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        report = whole(TrainRequest(recipe=name, overrides=two_steps_a_stage(name), wandb="off"))
    recipe = curricula.load(name, "laptop", two_steps_a_stage(name), check=False)
    if not recipe.stages:  # demonstrations and a cold start, and what AgentEvol makes of them
        assert set(report.table) == {"demonstrator", "SFT", *(f"evolved-{number}" for number in iterations(recipe))}
        return
    reached = [last for _, last in report.branches.values()] or [report.last]
    assert max(last.step for last in reached if last is not None) == recipe.total_steps
    assert set(report.table) >= {"demonstrator", *(recipe.branches or ("RL",))}
    with open_warehouse(home / "warehouse") as warehouse:
        trained = warehouse.sql("select distinct gym from trajectories where phase = 'train'").fetchall()
        steps = warehouse.sql("select count(distinct step) from trajectories where phase = 'train'").fetchall()
    assert {gym for (gym,) in trained} == set(recipe.training_gyms)
    assert steps == [(recipe.total_steps,)]
    published = curricula.load(name, check=False).training_gyms
    assert len(published) > 1 or recipe.training_gyms == tuple(OF_OUR_OWN.get(gym, gym) for gym in published)


MINE = """
name: mine
extends: equalized-r2g
source: ours
credit: {gamma: 0.93}
stages:
  - {steps: 7, horizon: 12, mix: {travel: 1, function: 1, telepathy: 1}}
  - {steps: 9, horizon: 14, mix: {travel: 1, function: 1}}
"""


def test_a_person_s_recipe_is_trained_evaluated_and_reported_as_it_was_written(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        report = whole(TrainRequest(recipe=str(path), overrides=SMALL, wandb="off"))
    page = (Path(report.folder) / "report.md").read_text()
    assert report.horizon == 14
    assert set(report.table["RL"]) == {"travel", "function", "telepathy"}
    assert "horizon 14" in page
    assert any(
        line.startswith("credit.gamma: 0.8 (recipe equalized-r2g) -> 0.93 (recipe mine)") for line in report.replaced
    )
    assert "- stages: " in page
    assert json.loads((Path(report.folder) / "report.json").read_text())["last"]["step"] == 16
    with open_warehouse(home / "warehouse") as warehouse:
        played = warehouse.sql(
            """select stage, max(step), any_value(horizon), list(distinct gym order by gym) from trajectories
               where phase = 'train' group by stage order by stage"""
        ).fetchall()
        judged = warehouse.sql(
            "select any_value(horizon), list(distinct gym order by gym) from trajectories where phase = 'evaluate'"
        ).fetchall()
        assert warehouse.sql("select gamma, horizon from runs").fetchall() == [(0.93, 14)]
    assert played == [("rl-1", 7, 12, ["function", "telepathy", "travel"]), ("rl-2", 16, 14, ["function", "travel"])]
    assert judged == [(14, ["function", "telepathy", "travel"])]
