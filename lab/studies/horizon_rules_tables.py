"""The tables of the study of horizon_rules.yaml, from data/horizon-rules/runs.csv.

python -m lab.studies.horizon_rules_tables [RUNS.csv]

The loss of a rule at a budget is the score of the best fixed horizon less that of the rule, over the same seeds. The fixed
horizon is chosen on one half of the seeds and measured on the other, because choosing and measuring on the same seeds is
biased upwards.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from analysis.measure.interval import Interval, t_interval
from lab.studies.study_rows import DATA, plan_hash, read_plan, read_rows

PLAN = Path(__file__).with_name("horizon_rules.yaml")
RUNS = DATA / "horizon-rules" / "runs.csv"

Scores = Mapping[str, Mapping[int, float]]
"""Scores at one budget by arm and seed."""


def main() -> None:
    """Print the losses of all rules and baselines, and whether each rule holds its promise."""
    plan = read_plan(PLAN)
    rows = read_rows(Path(sys.argv[1]) if sys.argv[1:] else RUNS)
    rows = [row for row in rows if row["plan"] == plan_hash(PLAN)]
    if not rows:
        sys.exit(
            f"There is no run of plan {plan_hash(PLAN)} yet. Start one with: python -m lab.studies.horizon_rules errand"
        )
    print("\n".join(tables(plan, rows)))


def tables(plan: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each family, reward and budget, and one for each rule's promise. In brackets: limits, then seeds."""
    arms = (*plan["rules"], *plan["baselines"])
    lines = [
        f"| family | reward | tokens | best fixed | {' | '.join(f'`{arm}`' for arm in arms)} |",
        "| --- | --- | ---: | --- |" + " ---: |" * len(arms),
    ]
    highest: dict[str, list[float]] = {rule: [] for rule in plan["rules"]}
    for family in plan["families"]:
        for reward in ("dense", "terminal"):
            own = [row for row in rows if (row["family"], row["reward"]) == (family, reward)]
            for budget in plan["budgets"]:
                tokens = round(budget * plan["tokens"])
                scores: dict[str, dict[int, float]] = {}
                for row in own:
                    scores.setdefault(row["arm"], {})[row["seed"]] = row[f"at_{tokens}"]
                best, cells_by_arm = "", []
                for arm in arms:
                    found = lost(scores, plan["fixed"], arm)
                    if found is None:
                        cells_by_arm.append("")
                        continue
                    loss, chosen = found
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
    main()
