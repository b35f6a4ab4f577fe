"""Run the study of horizon_rules.yaml: two rules for the horizon against fixed horizons and two baselines.

    python -m lab.studies.horizon_rules --list                       # the runs that are planned, and the hash of the plan
    python -m lab.studies.horizon_rules errand                       # the primary block of a family: both rewards, seed by seed
    python -m lab.studies.horizon_rules errand --block secondary
    python -m lab.studies.horizon_rules errand --seeds 701-704
    python -m lab.studies.horizon_rules_tables                       # the tables, from data/horizon-rules/runs.csv

Each arm and seed is an ordinary run of the home in $USERRL_HOME. Finished runs are not repeated, interrupted ones continue.
Each finished run adds its row to data/horizon-rules/runs.csv. The arms of a seed have the same demonstrations.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.studies.study_rows import (
    DATA,
    VALIDATED,
    add_row,
    chosen,
    plan_hash,
    read_plan,
    study_arguments,
    study_request,
)
from userrl.machine.home import quiet_process, warehouse_dir
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.stages.here import train_here
from warehouse import open_warehouse

PLAN = Path(__file__).with_suffix(".yaml")
RUNS = DATA / "horizon-rules" / "runs.csv"
REWARDS = ("dense", "terminal")


def main() -> int:
    """List or run one block of a family."""
    parser = study_arguments("Rules for the horizon.")
    parser.add_argument("--block", choices=["primary", "secondary"], default="primary")
    given = parser.parse_args()
    quiet_process()
    plan = read_plan(PLAN)
    print(f"plan {plan_hash(PLAN)}", file=sys.stderr)
    families = chosen(plan, given.family)
    for family in families:
        for seed, reward, arm in planned(plan, given.block, given.seeds):
            request = asked(plan, family, reward, arm, seed)
            if given.listed or not given.family:
                print(family, seed, reward, arm, plan_run(request).run_id)
            else:
                done = train_here(plan_run(request))
                spent = sum(done.cpu_seconds.values())
                row = {"family": family, "reward": reward, "arm": arm, "seed": seed, "plan": plan_hash(PLAN)}
                row |= {"run": done.run, **budget_scores(plan, done.run), "cpu_seconds": round(spent)}
                add_row(RUNS, ("family", "reward", "arm", "seed", "plan"), row)
                print(f"{done.run}: {spent:.0f} CPU-s", file=sys.stderr, flush=True)
    return 0


def planned(plan: Mapping[str, Any], block: str, seeds: str | None) -> Iterator[tuple[int, str, str]]:
    """Yield seed, reward and arm of each run of a block, seed by seed."""
    first, last = plan["first_seed"], plan["first_seed"] + plan["blocks"][block]["seeds"] - 1
    if seeds:
        first, last = map(int, seeds.split("-"))
    for seed in range(first, last + 1):
        for reward in REWARDS:
            for arm in plan["blocks"][block]["arms"]:
                yield seed, reward, arm


def asked(plan: Mapping[str, Any], family: str, reward: str, arm: str, seed: int) -> TrainRequest:
    """Return the request of one run."""
    settings = plan["families"][family]
    overrides = {
        "stages": [{"tokens": plan["tokens"], "mix": {family: 1}, "weigh": "tokens"}],
        "schedule": plan["arms"][arm],
        "demonstrations.horizon": 8,
        "evaluate.horizon": plan["evaluation_horizon"],
        "evaluate.gyms": [family],
        "evaluate.every": plan["every"],
        "evaluate.draw": "seed",
        "evaluate.tasks": None,
        **settings["settings"],
        **settings[reward],
    }
    return study_request(plan, seed, overrides)


def budget_scores(plan: Mapping[str, Any], run: str) -> dict[str, float]:
    """Return the score at each budget: the mean of the validations in the fifth that ends there."""
    with open_warehouse(warehouse_dir(), run=run) as warehouse:
        scores: dict[int, float] = dict(warehouse.sql(VALIDATED, run=run).fetchall())
    return at_budgets(scores, plan["budgets"], plan["tokens"])


def at_budgets(scores: Mapping[int, float], budgets: list[float], tokens: int) -> dict[str, float]:
    """Return the score at each budget, named by its tokens. scores: validation score by step. Steps have equal tokens."""
    steps, found = max(scores), {}
    for budget in budgets:
        in_fifth = [s for step, s in scores.items() if step > 0 and budget - 0.2 + 1e-9 < step / steps <= budget + 1e-9]
        found[f"at_{round(budget * tokens)}"] = round(fmean(in_fifth), 4)
    return found


if __name__ == "__main__":
    sys.exit(main())
