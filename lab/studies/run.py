"""Run a registered study. Each run trains one arm on one seed, and its rows go to the study's file under data/.

    python -m lab.studies.run STUDY FAMILY [--seeds 1301-1308]       # turn_budgets, task_curricula or horizon_rules
    python -m lab.studies.run STUDY FAMILY --list                    # the runs that are planned, with their ids

Each arm and seed is an ordinary run of the home in $USERRL_HOME. Runs with rows are skipped, and interrupted ones continue.
Several processes with different seeds may run at once, each on one core if $USERRL_THREADS is 1. With a seed that is not the
plan's, such as 0, on which settings are chosen, rows are printed and not stored.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from curricula import Recipe, load
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
from userrl.stages.workers import Workers
from userrl.worker.device import local_policy
from userrl_core.errors import TrainingError, UserRLError
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
TRAINED = """
SELECT max(all_tokens_so_far),
       (SELECT count(*) FROM trajectories WHERE run_id = $run AND phase = 'train')
FROM training_log() WHERE run_id = $run
"""


def main() -> int:
    """Run or list one family of a study. Returns 1 if a run failed."""
    parser = argparse.ArgumentParser(description="One family of a registered study.")
    parser.add_argument("study")
    parser.add_argument("family")
    parser.add_argument("--seeds", help="first-last; none: those of the plan")
    parser.add_argument("--list", action="store_true", dest="listed")
    arguments = parser.parse_args()
    leave_on_term()
    quiet_process()
    warnings.simplefilter("ignore", UserWarning)
    path = Path(__file__).with_name(f"{arguments.study}.yaml")
    plan = read_plan(path)
    file, registered = DATA / plan["data"], plan_hash(path)
    stored = {tuple(row[name] for name in KEY) for row in read_rows(file) if row["plan"] in plans(path)}
    failed = False
    with Workers() as workers:
        for cell, request in runs(plan, arguments.family, arguments.seeds):
            if arguments.listed:
                print(*cell.values(), plan_run(request).run_id)
            elif tuple(cell.values()) not in stored:
                try:
                    rows = [{**cell, "plan": registered, **row} for row in measured(plan, request, workers)]
                except (UserRLError, ProcessDied) as error:
                    print(f"failed: {cell}: {error}", file=sys.stderr, flush=True)
                    failed = True
                    continue
                print(*rows, sep="\n", flush=True)
                if cell["seed"] >= plan["first_seed"]:
                    add_rows(file, (*KEY, "plan", *(["budget"] if "budget" in rows[0] else [])), *rows)
    return int(failed)


def runs(plan: Mapping[str, Any], family: str, seeds: str | None = None) -> Iterator[tuple[Cell, TrainRequest]]:
    """Yield each run's cell and request, block by block and seed by seed. seeds: ``first-last`` instead of the plan's.

    A run ends with its last RL step. Runs of a seed with the same cold start train it once.
    """
    rewards = dict(plan["families"][family])
    shared = {
        "stages": [{"tokens": plan["tokens"], "mix": {family: 1}, "weigh": "tokens"}],
        "demonstrations.horizon": 8,
        "evaluate.horizon": plan["evaluation_horizon"],
        "evaluate.gyms": [family],
        "evaluate.every": plan["every"],
        "evaluate.draw": "seed",
        "evaluate.tasks": None,
        **rewards.pop("settings"),
    }
    for block in plan["blocks"].values():
        planned = range(plan["first_seed"], plan["first_seed"] + block["seeds"])
        first, last = map(int, seeds.split("-")) if seeds else (planned[0], planned[-1])
        chosen = [seed for seed in planned if first <= seed <= last]
        for seed in chosen if last >= planned[0] else range(first, last + 1):
            for (reward, paid), arm in product(rewards.items(), block["arms"]):
                changes = plan["arms"][arm]
                overrides = {**shared, **paid, **({"schedule": changes} if "kind" in changes else changes)}
                # A schedule without a gate has a stage for each of its horizons.
                stages = load(plan["recipe"], profile=plan["profile"], overrides=overrides).planned_stages
                yield (
                    {"family": family, "reward": reward, "arm": arm, "seed": seed},
                    TrainRequest(
                        recipe=plan["recipe"],
                        profile=plan["profile"],
                        seed=seed,
                        overrides=overrides,
                        until=stages[-1].name,
                        share_cold_start=True,
                        wandb="off",
                    ),
                )


def measured(plan: Mapping[str, Any], request: TrainRequest, workers: Workers) -> list[dict[str, Any]]:
    """Train one run, and return its rows: one for each budget of turns, or one with the score at each budget of tokens."""
    run_plan = plan_run(request)
    report = train_here(run_plan, workers=workers)
    before = time.process_time()
    if budgets := plan.get("turn_budgets"):
        result = StageJob.read(find(report.run).stage(run_plan.selected[-1]) / "job.json").finished()
        assert isinstance(result, TrainResult)
        scores = played(run_plan.recipe, result.checkpoint, request.seed, budgets)
    with open_warehouse(warehouse_dir(), run=report.run) as warehouse:
        by_step = dict(warehouse.sql(VALIDATED, run=report.run).fetchall())
        if not budgets:
            scores = [at_budgets(by_step, plan["budgets"], plan["tokens"])]
        [(tokens, conversations)] = warehouse.sql(TRAINED, run=report.run).fetchall()
    if (tokens or 0) < 0.99 * plan["tokens"]:  # stages of several horizons end a few tokens early
        raise TrainingError("process.died", f"Run {report.run} ended after {tokens} of {plan['tokens']} tokens.")
    seconds = sum(report.cpu_seconds.values()) + time.process_time() - before
    common = {
        "cold_start": round(by_step[0], 4),
        "cpu_seconds": round(seconds, 1),
        "tokens": tokens,
        "conversations": conversations,
        "code": training_code(),
        **origin(report.run),
    }
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
    by_budget = [
        asyncio.run(
            run_episodes(
                tasks,
                policy,
                horizon=budget,
                user=users_of(recipe, recipe.evaluation_gyms, role="evaluate"),
                gym_config=gym_config(recipe, evaluation=True),
                on_format_error=recipe.on_format_error,
                prompt_style=recipe.model.prompt_style,
                turns_left=recipe.model.turns_left,
                seed=seed,
            )
        )
        for budget in budgets
    ]
    return [budget_row(*pair, by_budget[-1]) for pair in zip(budgets, by_budget, strict=True)]


def budget_row(budget: int, trajectories: Sequence[Trajectory], longest: Sequence[Trajectory]) -> dict[str, Any]:
    """Return the means of a budget. longest: the same tasks with the largest budget.

    thresholded: the score of the longest conversations, of which those with more turns count as failed. differs: the share of
    tasks on which that is not the score. grounded, questions: None for a gym that does not count facts.
    """
    if rejected := [trajectory.task.key for trajectory in (*trajectories, *longest) if not trajectory.admitted]:
        raise TrainingError("process.died", f"{len(rejected)} conversations were rejected, such as {rejected[0]}.")
    scores = [trajectory.score or 0.0 for trajectory in trajectories]
    cut = [(trajectory.score or 0.0) * (len(trajectory.turns) <= budget) for trajectory in longest]
    values: dict[str, list[float]] = {
        "score": scores,
        "turns": [len(trajectory.turns) for trajectory in trajectories],
        "thresholded": cut,
        "differs": [score != thresholded for score, thresholded in zip(scores, cut, strict=True)],
    }
    if trajectories[0].task.gym in TOLD:
        facts = [answered(trajectory) for trajectory in trajectories]
        values["grounded"] = [conversation.grounded for conversation in facts]
        values["questions"] = [len(conversation.question_turns) for conversation in facts]
    means = {name: round(fmean(numbers), 4) for name, numbers in values.items()}
    return {"budget": budget, "tasks": len(trajectories), "grounded": None, "questions": None, **means}


if __name__ == "__main__":
    sys.exit(main())
