"""Tables and picture of data/horizon-rules: two rules for the horizon, against fixed horizons and two baselines.

python -m lab.pages.horizon_rules

The best fixed horizon at a budget is chosen on one half of the seeds and measured on the other, in both directions. Limits are
Student's t over seeds, 95 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from analysis.measure.interval import Interval, t_interval
from lab.pages.paired import Rows, line, read_study, rewrite
from userrl.reports.figures import Panel

REWARDS = ("dense", "terminal")

Scores = Mapping[str, Mapping[int, float]]
"""Scores by arm and seed."""
Losses = Mapping[str, Sequence[tuple[Interval, tuple[str, ...]]]]
"""By arm: the loss, and the fixed horizons that it is a loss to. Empty while seeds are missing."""


def main() -> None:
    """Write the tables and the picture."""
    plan, rows, folder = read_study("horizon_rules")
    rewrite(folder, "horizon_rules", list(page(plan, rows)), list(drawn(plan, rows)))


def page(plan: Mapping[str, Any], rows: Rows) -> Iterator[str]:
    """Yield the written part: first the endpoint over budgets, which decides, then that of each budget."""
    yield from over_budgets(plan, rows)
    yield from ("", *tables(plan, rows))
    yield from ("", "![Score by tokens for each rule and fixed horizon, with dense reward](scores.svg)")


def tables(plan: Mapping[str, Any], rows: Rows) -> list[str]:
    """Return a line for each family, reward and budget, and one for each rule's promise. In brackets: limits, then seeds."""
    lines = [head(plan, "tokens")]
    highest: dict[str, list[float]] = {rule: [] for rule in plan["rules"]}
    for family, reward in product(plan["families"], REWARDS):
        for budget in plan["budgets"]:
            losses = losses_of(plan, rows, (family, reward), [budget])
            lines += row_of(f"{family} | {reward} | {round(budget * plan['tokens']):,}", losses)
            for rule, highs in highest.items():
                highs += [loss.high for loss, _ in losses[rule]]
    cells = len(plan["families"]) * 2 * len(plan["budgets"])
    return [*lines, "", *(f"- {promise(rule, highs, cells, plan['threshold'])}" for rule, highs in highest.items())]


def over_budgets(plan: Mapping[str, Any], rows: Rows) -> list[str]:
    """Return the endpoint over budgets: a line for each family and reward, and one for each rule."""
    lines = [head(plan, "budgets")]
    highs: dict[str, list[float]] = {rule: [] for rule in plan["rules"]}
    for family, reward in product(plan["families"], REWARDS):
        losses = losses_of(plan, rows, (family, reward), plan["budgets"])
        lines += row_of(f"{family} | {reward} | mean", losses)
        for rule in plan["rules"] if reward == "dense" else ():
            highs[rule] += [loss.high for loss, _ in losses[rule]]
    below = {rule: sum(high < plan["threshold"] for high in some) for rule, some in highs.items()}
    families = len(plan["families"])
    return [
        *lines,
        "",
        *(
            f"- `{rule}` loses less than {plan['threshold']} to the best fixed horizon on {below[rule]} of {len(some)} families "
            f"with dense reward; {families - len(some)} of {families} have no runs yet."
            for rule, some in highs.items()
        ),
    ]


def head(plan: Mapping[str, Any], column: str) -> str:
    """Return the head of a table of losses."""
    arms = (*plan["rules"], *plan["baselines"])
    names = " | ".join(f"`{arm}`" for arm in arms)
    return f"| family | reward | {column} | best fixed | {names} |\n| --- | --- | ---: | --- |" + " ---: |" * len(arms)


def row_of(name: str, losses: Losses) -> list[str]:
    """Return the line of a table of losses; none without a best fixed horizon."""
    best = next((", ".join(chosen) for results in losses.values() for _, chosen in results), "")
    cell_texts = [
        "".join(f"{loss.estimate:+.3f} [{loss.low:+.3f}, {loss.high:+.3f}] ({loss.units})" for loss, _ in results)
        for results in losses.values()
    ]
    return [f"| {name} | {best} | {' | '.join(cell_texts)} |"] if best else []


def losses_of(plan: Mapping[str, Any], rows: Rows, cell: tuple[str, str], budgets: Sequence[float]) -> Losses:
    """Return the losses of rules and baselines in a cell of family and reward. A seed's score is its mean over the budgets."""
    names = [f"at_{round(budget * plan['tokens'])}" for budget in budgets]
    scores: dict[str, dict[int, float]] = {}
    for row in rows:
        if (row["family"], row["reward"]) == cell:
            scores.setdefault(row["arm"], {})[row["seed"]] = fmean(row[name] for name in names)
    return {arm: lost(scores, plan["fixed"], arm) for arm in (*plan["rules"], *plan["baselines"])}


def lost(scores: Scores, fixed: Sequence[str], arm: str) -> list[tuple[Interval, tuple[str, ...]]]:
    """Return the loss of an arm and the fixed horizons chosen on either half; nothing while an arm lacks seeds.

    Halves are of the seeds that all fixed horizons have. If both choose the same one, all seeds that it shares with
    the arm are measured.
    """
    if not all(scores.get(name) for name in (*fixed, arm)):
        return []
    seeds = sorted(set.intersection(*(set(scores[name]) for name in fixed)))
    if len(seeds) < 2:
        return []
    halves = (seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :])
    chosen = tuple(max(fixed, key=lambda name: fmean(scores[name][seed] for seed in half)) for half in halves)
    if chosen[0] == chosen[1]:
        pairs = [(chosen[0], seed) for seed in sorted(scores[chosen[0]])]
    else:
        pairs = [(name, seed) for name, half in zip(chosen, reversed(halves), strict=True) for seed in half]
    losses = [scores[name][seed] - scores[arm][seed] for name, seed in pairs if seed in scores[arm]]
    return [(t_interval(np.array(losses)), tuple(dict.fromkeys(chosen)))] if losses else []


def promise(rule: str, highs: Sequence[float], cells: int, threshold: float) -> str:
    """Return whether a rule holds its promise, in a sentence."""
    if any(high >= threshold for high in highs):
        missed = sum(high >= threshold for high in highs)
        return f"`{rule}` does not hold its promise: the upper limit is {threshold} or more in {missed} of {len(highs)} cells."
    if len(highs) < cells:
        return f"`{rule}`: {len(highs)} of {cells} cells are there, all below {threshold}."
    return f"`{rule}` holds its promise in all {cells} cells."


def drawn(plan: Mapping[str, Any], rows: Rows) -> Iterator[Panel]:
    """Yield a panel a family: the score with dense reward by tokens, of each rule and each fixed horizon."""
    for family in dict.fromkeys(row["family"] for row in rows):
        dense = [row for row in rows if (row["family"], row["reward"]) == (family, "dense")]
        points = {round(share * plan["tokens"]): f"at_{round(share * plan['tokens'])}" for share in plan["budgets"]}
        lines = [
            line(
                arm,
                {x: {row["seed"]: row[name] for row in dense if row["arm"] == arm} for x, name in points.items()},
                band=arm in plan["rules"],
            )
            for arm in (*plan["rules"], *plan["fixed"])
        ]
        yield Panel(f"{family}: score", lines, x="tokens")


if __name__ == "__main__":
    main()
