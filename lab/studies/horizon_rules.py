"""The study of horizon_rules.yaml: two rules for the horizon against fixed horizons and two baselines.

    python -m lab.studies.horizon_rules --list                       # the runs that are planned, and the hash of the plan
    python -m lab.studies.horizon_rules errand                       # the primary block of a family: both rewards, seed by seed
    python -m lab.studies.horizon_rules errand --block secondary
    python -m lab.studies.horizon_rules errand --seeds 701-704
    python -m lab.studies.horizon_rules --tables                     # the tables, from data/horizon-rules/runs.csv

Each arm and seed is an ordinary run of the home in $USERRL_HOME. Finished runs are not repeated, interrupted ones continue.
Each finished run adds its row to data/horizon-rules/runs.csv. The arms of a seed have the same demonstrations.

The best fixed horizon at a budget is chosen on one half of the seeds and measured on the other, in both directions. Limits are
Student's t over seeds, 95 %.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from analysis.measure.interval import Interval, t_interval
from lab.rows import DATA, add_row, read_rows
from lab.studies.registered import (
    VALIDATED,
    Cell,
    Planned,
    chosen,
    plan_hash,
    read_plan,
    run_each,
    seeds_of,
    study_arguments,
    study_request,
)
from userrl.machine.home import quiet_process, warehouse_dir
from userrl.run.request import TrainRequest
from warehouse import open_warehouse

PLAN = Path(__file__).with_suffix(".yaml")
RUNS = DATA / "horizon-rules" / "runs.csv"
REWARDS = ("dense", "terminal")

Scores = Mapping[str, Mapping[int, float]]
"""Scores at one budget by arm and seed."""


def main() -> int:
    """List or run one block of a family, or print the tables."""
    parser = study_arguments("Rules for the horizon.")
    parser.add_argument("--block", choices=["primary", "secondary"], default="primary")
    arguments = parser.parse_args()
    quiet_process()
    plan = read_plan(PLAN)
    if arguments.tables:
        print("\n".join(tables(plan, [row for row in read_rows(RUNS) if row["plan"] == plan_hash(PLAN)])))
        return 0
    print(f"plan {plan_hash(PLAN)}", file=sys.stderr)

    def add(cell: Cell, run: str, spent: float) -> None:
        row = {**cell, "plan": plan_hash(PLAN), "run": run, **budget_scores(plan, run), "cpu_seconds": round(spent)}
        add_row(RUNS, ("family", "reward", "arm", "seed", "plan"), row)

    runs = planned(plan, chosen(plan, arguments.family), arguments.block, arguments.seeds)
    run_each(runs, add, listed=arguments.listed or not arguments.family)
    return 0


def planned(plan: Mapping[str, Any], families: Sequence[str], block: str, seeds: str | None) -> Iterator[Planned]:
    """Yield the runs of a block, family by family and seed by seed."""
    first, arms = plan["first_seed"], plan["blocks"][block]["arms"]
    for family in families:
        for seed in seeds_of(seeds, first, first + plan["blocks"][block]["seeds"] - 1):
            for reward in REWARDS:
                for arm in arms:
                    cell = {"family": family, "reward": reward, "arm": arm, "seed": seed}
                    yield cell, asked(plan, family, reward, arm, seed)


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
    steps, budget_means = max(scores), {}
    for budget in budgets:
        in_fifth = [s for step, s in scores.items() if step > 0 and budget - 0.2 + 1e-9 < step / steps <= budget + 1e-9]
        budget_means[f"at_{round(budget * tokens)}"] = round(fmean(in_fifth), 4)
    return budget_means


def tables(plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each family, reward and budget, and one for each rule's promise. In brackets: limits, then seeds."""
    arms = (*plan["rules"], *plan["baselines"])
    lines = [
        f"| family | reward | tokens | best fixed | {' | '.join(f'`{arm}`' for arm in arms)} |",
        "| --- | --- | ---: | --- |" + " ---: |" * len(arms),
    ]
    highest: dict[str, list[float]] = {rule: [] for rule in plan["rules"]}
    for family in plan["families"]:
        for reward in REWARDS:
            cell_rows = [row for row in rows if (row["family"], row["reward"]) == (family, reward)]
            for budget in plan["budgets"]:
                tokens = round(budget * plan["tokens"])
                scores: dict[str, dict[int, float]] = {}
                for row in cell_rows:
                    scores.setdefault(row["arm"], {})[row["seed"]] = row[f"at_{tokens}"]
                best, cells_by_arm = "", []
                for arm in arms:
                    result = lost(scores, plan["fixed"], arm)
                    if result is None:
                        cells_by_arm.append("")
                        continue
                    loss, chosen = result
                    best = ", ".join(chosen)
                    if arm in highest:
                        highest[arm].append(loss.high)
                    cells_by_arm.append(f"{loss.estimate:+.3f} [{loss.low:+.3f}, {loss.high:+.3f}] ({loss.units})")
                if best:
                    lines.append(f"| {family} | {reward} | {tokens:,} | {best} | {' | '.join(cells_by_arm)} |")
    cells = len(plan["families"]) * 2 * len(plan["budgets"])
    return [*lines, "", *(promise(rule, highs, cells, plan["threshold"]) for rule, highs in highest.items())]


def lost(scores: Scores, fixed: Sequence[str], arm: str) -> tuple[Interval, tuple[str, ...]] | None:
    """Return the loss of an arm and the fixed horizons chosen on either half; None while an arm lacks seeds.

    Halves are of the seeds that all fixed horizons have. If both choose the same one, all seeds that it shares with
    the arm are measured.
    """
    if not all(scores.get(name) for name in (*fixed, arm)):
        return None
    seeds = sorted(set.intersection(*(set(scores[name]) for name in fixed)))
    if len(seeds) < 2:
        return None
    halves = (seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :])
    chosen = tuple(max(fixed, key=lambda name: fmean(scores[name][seed] for seed in half)) for half in halves)
    if chosen[0] == chosen[1]:
        pairs = [(chosen[0], seed) for seed in sorted(scores[chosen[0]])]
    else:
        pairs = [(name, seed) for name, half in zip(chosen, reversed(halves), strict=True) for seed in half]
    losses = [scores[name][seed] - scores[arm][seed] for name, seed in pairs if seed in scores[arm]]
    return (t_interval(np.array(losses)), tuple(dict.fromkeys(chosen))) if losses else None


def promise(rule: str, highs: Sequence[float], cells: int, threshold: float) -> str:
    """Return whether a rule holds its promise, in a sentence."""
    if any(high >= threshold for high in highs):
        missed = sum(high >= threshold for high in highs)
        return f"`{rule}` does not hold its promise: the upper limit is {threshold} or more in {missed} of {len(highs)} cells."
    if len(highs) < cells:
        return f"`{rule}`: {len(highs)} of {cells} cells are there, all below {threshold}."
    return f"`{rule}` holds its promise in all {cells} cells."


if __name__ == "__main__":
    sys.exit(main())
