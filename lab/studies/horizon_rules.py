"""The study of horizon_rules.yaml: two rules for the horizon against fixed horizons and two baselines.

    python -m lab.studies.horizon_rules      # the tables, from data/horizon-rules/runs.csv

The half that ran the study is finished (data/finished-studies.md).

The best fixed horizon at a budget is chosen on one half of the seeds and measured on the other, in both directions. Limits are
Student's t over seeds, 95 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from analysis.measure.interval import Interval, t_interval
from lab.rows import DATA, read_rows
from lab.studies.registered import plan_hash, read_plan

PLAN = Path(__file__).with_suffix(".yaml")
RUNS = DATA / "horizon-rules" / "runs.csv"
REWARDS = ("dense", "terminal")

Scores = Mapping[str, Mapping[int, float]]
"""Scores at one budget by arm and seed."""


def main() -> None:
    """Print the tables."""
    print("\n".join(tables(read_plan(PLAN), [row for row in read_rows(RUNS) if row["plan"] == plan_hash(PLAN)])))


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
    main()
