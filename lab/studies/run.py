"""Run a registered study. Each run trains one arm on one seed, and its rows go to the study's file under data/.

    python -m lab.studies.run STUDY FAMILY [--seeds 1301-1308]       # turn_budgets, task_curricula or horizon_rules
    python -m lab.studies.run STUDY FAMILY --list                    # the runs that are planned, with their ids

Each arm and seed is an ordinary run of the home in $USERRL_HOME. Runs with rows are skipped, and interrupted ones continue.
Several processes with different seeds may run at once. With a seed that is not the plan's, such as 0, on which settings are
chosen, and with ``--set``, rows are printed and not stored.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from curricula import Recipe
from flows.cli.training.recipe import parse_changes
from lab.rows import DATA, add_rows, read_rows
from lab.studies.all_recipes import origin
from lab.studies.registered import plan_hash, plans, read_plan
from userrl.audits.grounded import TOLD, answered
from userrl.claims.code import training_code
from userrl.machine.home import quiet_process, warehouse_dir
from userrl.machine.interrupts import leave_on_term
from userrl.run.job import StageJob
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.run.results import TrainResult
from userrl.run.run import find
from userrl.run.tasks import gym_config, test_tasks, users_of
from userrl.stages.here import train_here
from userrl.worker.device import local_policy
from userrl_core.errors import UserRLError
from userrl_core.processes import ProcessDied
from userrl_core.records import Trajectory
from userrl_core.rollout import run_episodes
from warehouse import open_warehouse

KEY = ("family", "reward", "arm", "seed")
"""What distinguishes a run of a study."""
Cell = dict[str, Any]

VALIDATED = """
SELECT step, avg(score) AS score FROM trajectories
WHERE run_id = $run AND phase = 'validate' AND admitted AND score IS NOT NULL GROUP BY step ORDER BY step
"""
TOKENS = "SELECT max(all_tokens_so_far) FROM training_log() WHERE run_id = $run"


def main() -> int:
    """Run or list one family of a study. Returns 1 if a run failed."""
    parser = argparse.ArgumentParser(description="One family of a registered study.")
    parser.add_argument("study")
    parser.add_argument("family")
    parser.add_argument("--arms", nargs="+")
    parser.add_argument("--seeds", help="first-last; none: those of the plan")
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--list", action="store_true", dest="listed")
    arguments = parser.parse_args()
    path = Path(__file__).with_name(f"{arguments.study}.yaml")
    plan, changes = read_plan(path), parse_changes(arguments.changes)
    leave_on_term()
    quiet_process()
    warnings.simplefilter("ignore", UserWarning)
    file = DATA / plan["data"]
    stored = {tuple(row[name] for name in KEY) for row in read_rows(file) if row["plan"] in plans(path)}
    failed = False
    for cell, overrides in cells(plan, arguments.family, arguments.seeds):
        if arguments.arms and cell["arm"] not in arguments.arms:
            continue
        request = request_of(plan, cell["seed"], {**overrides, **changes})
        if arguments.listed:
            print(*cell.values(), plan_run(request).run_id)
        elif tuple(cell.values()) not in stored:
            try:
                rows = measured(plan, request)
            except (UserRLError, ProcessDied) as error:
                print(f"failed: {cell}: {error}", file=sys.stderr, flush=True)
                failed = True
                continue
            rows = [{**cell, "plan": plan_hash(path), **row} for row in rows]
            print(*rows, sep="\n", flush=True)
            if cell["seed"] >= plan["first_seed"] and not changes:
                add_rows(file, (*KEY, "plan", *(["budget"] if "budget" in rows[0] else [])), *rows)
    return int(failed)


def cells(plan: Mapping[str, Any], family: str, seeds: str | None = None) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Yield each run's cell and overrides, block by block and seed by seed. seeds: ``first-last`` instead of the plan's."""
    rewards = dict(plan["families"][family])
    settings = rewards.pop("settings")
    for block in plan["blocks"].values():
        first, last = map(int, seeds.split("-")) if seeds else (0, sys.maxsize)
        planned = range(plan["first_seed"], plan["first_seed"] + block["seeds"])
        for seed in (
            [seed for seed in planned if first <= seed <= last] if last >= planned[0] else range(first, last + 1)
        ):
            for reward, paid in rewards.items():
                for arm in block["arms"]:
                    changes = plan["arms"][arm]
                    overrides = {
                        "stages": [{"tokens": plan["tokens"], "mix": {family: 1}, "weigh": "tokens"}],
                        "demonstrations.horizon": 8,
                        "evaluate.horizon": plan["evaluation_horizon"],
                        "evaluate.gyms": [family],
                        "evaluate.every": plan["every"],
                        "evaluate.draw": "seed",
                        "evaluate.tasks": None,
                        **settings,
                        **paid,
                        **({"schedule": changes} if "kind" in changes else changes),
                    }
                    yield {"family": family, "reward": reward, "arm": arm, "seed": seed}, overrides


def request_of(plan: Mapping[str, Any], seed: int, overrides: dict[str, Any]) -> TrainRequest:
    """Return the request of one run, up to its last RL step. Runs of a seed with the same cold start train it once."""
    return TrainRequest(
        recipe=plan["recipe"],
        profile=plan["profile"],
        seed=seed,
        overrides=overrides,
        until="rl-1",
        share_cold_start=True,
        wandb="off",
    )


def measured(plan: Mapping[str, Any], request: TrainRequest) -> list[dict[str, Any]]:
    """Train one run, and return its rows: one for each budget of turns, or one with the score at each budget of tokens."""
    run_plan = plan_run(request)
    report = train_here(run_plan)
    before = time.process_time()
    if "turn_budgets" in plan:
        result = StageJob.read(find(report.run).stage("rl-1") / "job.json").finished()
        assert isinstance(result, TrainResult)
        scores = played(run_plan.recipe, result.checkpoint, request.seed, plan["turn_budgets"])
    with open_warehouse(warehouse_dir(), run=report.run) as warehouse:
        if "turn_budgets" not in plan:
            by_step = dict(warehouse.sql(VALIDATED, run=report.run).fetchall())
            scores = [at_budgets(by_step, plan["budgets"], plan["tokens"])]
        [(tokens,)] = warehouse.sql(TOKENS, run=report.run).fetchall()
    seconds = sum(report.cpu_seconds.values()) + time.process_time() - before
    common = {"cpu_seconds": round(seconds, 1), "tokens": tokens, "code": training_code(), **origin(report.run)}
    return [{"run": report.run, **score, **common} for score in scores]


def at_budgets(scores: Mapping[int, float], budgets: Sequence[float], tokens: int) -> dict[str, float]:
    """Return the score at each budget, named by its tokens: the mean of the validations in the fifth that ends there.

    scores: validation score by step. Steps have equal tokens.
    """
    steps, means = max(scores), {}
    for budget in budgets:
        in_fifth = [s for step, s in scores.items() if step > 0 and budget - 0.2 + 1e-9 < step / steps <= budget + 1e-9]
        means[f"at_{round(budget * tokens)}"] = round(fmean(in_fifth), 4)
    return means


def played(recipe: Recipe, checkpoint: Path, seed: int, budgets: Sequence[int]) -> list[dict[str, Any]]:
    """Play all test tasks greedily with each budget of turns, and return a row for each budget."""
    tasks, algorithm = test_tasks(recipe, seed), recipe.algorithm
    policy = local_policy(
        checkpoint,
        recipe.model,
        recipe.hardware.threads,
        max_tokens=algorithm.max_tokens,
        max_response_tokens=algorithm.max_response_tokens,
        seed=seed,
    )
    trajectories = asyncio.run(
        run_episodes(
            [task for _ in budgets for task in tasks],
            policy,
            horizon=[budget for budget in budgets for _ in tasks],
            user=users_of(recipe, recipe.evaluation_gyms, role="evaluate"),
            gym_config=gym_config(recipe, evaluation=True),
            on_format_error=recipe.on_format_error,
            prompt_style=recipe.model.prompt_style,
            turns_left=recipe.model.turns_left,
            seed=seed,
        )
    )
    by_budget = [trajectories[n * len(tasks) : (n + 1) * len(tasks)] for n in range(len(budgets))]
    return [budget_row(*pair, by_budget[-1]) for pair in zip(budgets, by_budget, strict=True)]


def budget_row(budget: int, trajectories: Sequence[Trajectory], longest: Sequence[Trajectory]) -> dict[str, Any]:
    """Return the means of a budget. longest: the same tasks with the largest budget.

    thresholded: the score of the longest conversations, of which those with more turns count as failed. differs: the share of
    tasks on which that is not the score. grounded: see `userrl.audits.grounded`; None for a gym that does not count facts.
    """
    scores = [trajectory.score or 0.0 for trajectory in trajectories]
    cut = [(trajectory.score or 0.0) * (len(trajectory.turns) <= budget) for trajectory in longest]
    counted = trajectories[0].task.gym in TOLD
    values: dict[str, list[float]] = {
        "score": scores,
        "grounded": [answered(trajectory).grounded for trajectory in trajectories] if counted else [],
        "questions": [sum(turn.choice == "action" for turn in trajectory.turns) for trajectory in trajectories]
        if counted
        else [],
        "turns": [len(trajectory.turns) for trajectory in trajectories],
        "cut_off": [trajectory.stop_reason == "horizon" for trajectory in trajectories],
        "thresholded": cut,
        "differs": [score != thresholded for score, thresholded in zip(scores, cut, strict=True)],
    }
    means = {name: round(fmean(numbers), 4) if numbers else None for name, numbers in values.items()}
    return {"budget": budget, "tasks": len(trajectories), **means}


if __name__ == "__main__":
    sys.exit(main())
