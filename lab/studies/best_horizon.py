"""The best fixed horizon at each budget, and the loss of the adaptive schedule compared with it.

    userrl reproduce best-horizon --seeds 8
    python -m lab.studies.best_horizon                    # prints the tables from the warehouse of $USERRL_HOME

A run of the whole budget passes through the smaller ones, because learning rate and fixed horizon do not depend on the
budget. So the score at a budget is the mean of the validations in its last fifth (of the whole budget). The fixed horizon
to compare with is chosen on one half of the seeds and measured on the other, in both directions. Choosing and measuring on
the same seeds would be biased upwards.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from analysis.measure.interval import Interval, t_interval
from curricula.claims import load_claim
from userrl.claims.register import runs_of
from userrl.machine.home import warehouse_dir
from warehouse import open_warehouse

CLAIM, ADAPTIVE = "best-horizon", "adaptive"
BUDGETS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares of the claim's tokens."""
GOAL = 0.05
"""Allowed loss of the adaptive schedule: the upper limit of the interval must be below."""

Scores = Mapping[int, Mapping[str, Mapping[float, float]]]
"""Scores by seed, arm and budget."""

VALIDATIONS = """
    WITH of_claim AS (SELECT seed, arm, run_id FROM claim_arms(of_claim := $claim) WHERE hash = $hash AND state = 'ended')
    SELECT o.seed, o.arm, t.step, max(t.step) OVER (PARTITION BY o.run_id) AS steps, avg(t.score) AS score
    FROM trajectories t JOIN of_claim o USING (run_id) WHERE t.phase = 'validate' AND t.admitted
    GROUP BY o.seed, o.arm, o.run_id, t.step ORDER BY ALL
"""


def main() -> None:
    """Print both tables."""
    argparse.ArgumentParser(description="Best fixed horizon against budget.").parse_args()
    claim = load_claim(CLAIM)
    with open_warehouse(warehouse_dir(), run=runs_of([CLAIM])) as warehouse:
        rows = warehouse.rows(VALIDATIONS, claim=CLAIM, hash=claim.hash)
    scores: dict[int, dict[str, dict[float, float]]] = {}
    for seed, arm in sorted({(row["seed"], row["arm"]) for row in rows}):
        own = [row for row in rows if (row["seed"], row["arm"]) == (seed, arm)]
        scores.setdefault(seed, {})[arm] = {budget: at(own, budget) for budget in BUDGETS}
    whole = {seed: by_arm for seed, by_arm in scores.items() if by_arm.keys() == claim.arms.keys()}
    fixed = [arm for arm in claim.arms if arm != ADAPTIVE]
    print("\n".join([*by_budget(whole, fixed, claim.tokens), "", *held_out(whole, fixed, claim.tokens)]))


def at(rows: Sequence[Mapping[str, float]], budget: float) -> float:
    """Return the mean of a run's validations in the last fifth (of the whole budget) before a budget."""
    return fmean(
        row["score"] for row in rows if budget - 0.2 < row["step"] / row["steps"] <= budget and row["step"] > 0
    )


def by_budget(scores: Scores, fixed: Sequence[str], tokens: int) -> list[str]:
    """Return a table with one row per budget and one column per arm."""
    arms = [*fixed, ADAPTIVE]
    lines = [
        f"| tokens | {' | '.join(f'`{arm}`' for arm in arms)} | best fixed |",
        "| ---: |" + " ---: |" * (len(arms) + 1),
    ]
    for budget in BUDGETS:
        limits = {arm: interval([seed_scores[arm][budget] for seed_scores in scores.values()]) for arm in arms}
        best = max(fixed, key=lambda arm: limits[arm].estimate)
        cells = " | ".join(said(limits[arm]) for arm in arms)
        lines.append(f"| {budget * tokens:,.0f} | {cells} | `{best}` |")
    return lines


def held_out(scores: Scores, fixed: Sequence[str], tokens: int) -> list[str]:
    """Return the advantage over the adaptive schedule on one half of the seeds, for the horizon chosen on the other half."""
    seeds = sorted(scores)
    halves = (seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :])
    lines = [
        "| tokens | chosen on the first half | on the second | lost by adaptive [95 %] | goal |",
        "| ---: | --- | --- | ---: | --- |",
    ]
    for budget in BUDGETS:
        chosen = [max(fixed, key=lambda arm: fmean(scores[s][arm][budget] for s in half)) for half in halves]
        lost = [
            scores[seed][arm][budget] - scores[seed][ADAPTIVE][budget]
            for arm, measured in zip(chosen, reversed(halves), strict=True)
            for seed in measured
        ]
        loss = interval(lost)
        met = "met" if loss.high < GOAL else "not met"
        lines.append(f"| {budget * tokens:,.0f} | `{chosen[0]}` | `{chosen[1]}` | {said(loss)} | {met} |")
    return lines


def interval(values: Sequence[float]) -> Interval:
    """Return Student's t interval over seeds."""
    return t_interval(np.array(values))


def said(limits: Interval) -> str:
    """Format an interval as on the page of claims."""
    return f"{limits.estimate:.3f} [{limits.low:.3f}, {limits.high:.3f}]"


if __name__ == "__main__":
    main()
