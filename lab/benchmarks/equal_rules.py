"""False differences of ``userrl audit credit``: simulated audits of rules that do not differ.

    python -m lab.benchmarks.equal_rules [--audits 300] [--rules 30]

Each rule's expected advantages are half the utilities plus an error of its own. Both are measured twice with noise, as the
audit does. Prints, for 10, 20, 30 and 40 tasks, the share of audits that name any difference; the limit is 5 %.
"""

from __future__ import annotations

import argparse

import numpy as np

from analysis.credit.agreement import Measures
from analysis.credit.told_apart import told_apart
from analysis.measure.interval import share_interval
from tests.analysis.credit.test_told_apart import rule
from userrl_core.number_format import with_limits

TURNS, NOISE = 30, 0.3


def main() -> None:
    """Print the share of audits with a false difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--audits", type=int, default=300)
    parser.add_argument("--rules", type=int, default=30)
    arguments = parser.parse_args()
    for tasks in (10, 20, 30, 40):
        rng = np.random.default_rng(tasks)
        comparisons = [told_apart(audit(rng, tasks, arguments.rules), tasks_from=2) for _ in range(arguments.audits)]
        false = sum(comparison is not None and comparison.differ > 0 for comparison in comparisons)
        print(f"{tasks} tasks: {with_limits(share_interval(false, arguments.audits))} of {arguments.audits} audits")


def audit(rng: np.random.Generator, tasks: int, rules: int) -> list[Measures]:
    """Return the rules of one audit; every second rule is measured with twice the noise."""

    def half(values: np.ndarray, noise: float = NOISE) -> np.ndarray:
        measured: np.ndarray = values + rng.normal(0, noise, values.shape)
        return measured

    true = rng.normal(size=(tasks, TURNS))
    u1, u2 = half(true), half(true)
    rows = []
    for number in range(rules):
        expected = 0.5 * true + rng.normal(0, 0.5, true.shape)
        noise = NOISE * (1 + number % 2)
        rows.append(rule(f"rule {number}", half(expected, noise), half(expected, noise), u1, u2))
    return rows


if __name__ == "__main__":
    main()
