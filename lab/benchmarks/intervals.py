"""Coverage of our intervals and false alarms of our verdicts: ``python -m lab.benchmarks.intervals [--only one-sided]``.

*Checkpoints*: agent A solves task i with probability q_i ~ Beta(a, b), agent B with logistic(logit q_i + N(theta, .5^2)),
theta .3; under the null, B's probability equals A's. Prints the coverage of the paired difference over tasks, and the
false alarms of the exact test at 5 %.

*Recipes*: a run's score is its arm's mean plus its seed's deviation, measured on 400 tasks; some seeds collapse to .1.
Prints the coverage of t over paired seed differences, and that of the interval over the tasks of one run per arm.

*One-sided collapse*: one arm never collapses; the other does in 3 to 25 % of its runs, down to .1. Where the means of all
runs are equal, its other runs score higher, and the score part should see that. Where the runs that held are equal, the
score part has nothing to find, and its alarms are false. Prints how often the former rule (paired t at .02 a look) and both
parts of the present one declare a direction, at each look and at any.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import stats

from analysis.measure.checkpoints import difference
from analysis.measure.recipes import contrast
from analysis.measure.verdict import ALPHA, LOOKS

SHAPES = ((0.5, 0.5), (0.3, 0.7), (0.05, 0.45))
TASKS, ATTEMPTS, THETA = (40, 50, 115, 400), (1, 4), 0.3
SEEDS, DEVIATIONS, COLLAPSED = (3, 5, 8, 16, 25), (0.05, 0.07), (0.0, 0.1, 0.3)
RUN_TASKS, FLOOR = 400, 0.1
ONE_SIDED, HELD_DEVIATION, STABLE = (0.0, 0.03, 0.05, 0.10, 0.14, 0.25), 0.04, 0.846


def checkpoints(cell: tuple[tuple[float, float], int, int, int]) -> tuple[float, float]:
    """Return coverage and false alarms of one cell: shape of q, tasks, attempts, draws."""
    (a, b), m, n, draws = cell
    rng = np.random.default_rng(0)
    q = _inside(rng.beta(a, b, 10**6))
    true = float((_shifted(q, rng) - q).mean())
    covered = alarms = 0
    for _ in range(draws):
        q_M = _inside(rng.beta(a, b, m))
        interval = difference(_attempts(q_M, n, rng), _attempts(_shifted(q_M, rng), n, rng)).interval
        covered += interval.low <= true <= interval.high
        alarms += difference(_attempts(q_M, n, rng), _attempts(q_M, n, rng)).p < 0.05
    return covered / draws, alarms / draws


def recipes(cell: tuple[int, float, float, int]) -> tuple[float, float]:
    """For two equal recipes, return the coverage of t over seeds, and the false alarms of an interval over one run's tasks."""
    seeds, deviation, collapsed, draws = cell
    rng = np.random.default_rng(0)
    covered = alarms = 0
    for _ in range(draws):
        arms = [
            np.where(rng.random(seeds) < collapsed, FLOOR, rng.normal(0.5, deviation, seeds)).clip(0, 1) for _ in (0, 1)
        ]
        runs = [[(rng.random(RUN_TASKS) < score).astype(float) for score in arm] for arm in arms]
        scores = [{seed: float(run.mean()) for seed, run in enumerate(arm)} for arm in runs]
        interval = contrast(scores[0], scores[1]).interval
        covered += interval.low <= 0 <= interval.high
        a, b = ([[verdict] for verdict in arm[0]] for arm in runs)
        first = difference(a, b).interval
        alarms += not first.low <= 0 <= first.high
    return covered / draws, alarms / draws


@dataclass(frozen=True, slots=True)
class OneSided:
    """Shares of data sets in which a direction is declared, at each of the looks alone and at any of them.

    former: t of paired differences at .02. share, score: the parts of the two-part rule, each at .01. either: of the two.
    """

    former: list[float]
    share: list[float]
    score: list[float]
    either: list[float]


def one_sided(cell: tuple[float, bool, int]) -> OneSided:
    """Return the alarms of one cell: share of collapses in one arm, whether the means over all runs are equal, draws."""
    collapsed, equal_means, draws = cell
    rng = np.random.default_rng(0)
    max_seeds = LOOKS[-1]
    mode = (STABLE - collapsed * FLOOR) / (1 - collapsed) if equal_means else STABLE
    stable = rng.normal(STABLE, HELD_DEVIATION, (draws, max_seeds)).clip(0, 1)
    fell = rng.random((draws, max_seeds)) < collapsed
    other = np.where(fell, FLOOR, rng.normal(mode, HELD_DEVIATION, (draws, max_seeds)).clip(0, 1))
    former, share, score = [], [], []
    for n in LOOKS:
        difference_DS = other[:, :n] - stable[:, :n]
        former.append(stats.ttest_1samp(difference_DS, 0, axis=1).pvalue < ALPHA)
        by_count = [stats.fisher_exact([[k, n - k], [0, n]]).pvalue < ALPHA / 2 for k in range(n + 1)]
        share.append(np.array(by_count)[fell[:, :n].sum(axis=1)])
        held_scores = np.where(fell[:, :n], np.nan, other[:, :n])
        enough = n - fell[:, :n].sum(axis=1) >= 4
        p = stats.ttest_ind(held_scores, stable[:, :n], axis=1, equal_var=False, nan_policy="omit").pvalue
        score.append((np.ma.filled(p, 1.0) < ALPHA / 2) & enough)
    either = [a | b for a, b in zip(share, score, strict=True)]

    def alarms(looks: list[np.ndarray]) -> list[float]:
        return [float(look.mean()) for look in (*looks, np.any(looks, axis=0))]

    return OneSided(alarms(former), alarms(share), alarms(score), alarms(either))


def _one_sided(draws: int, processes: int) -> None:
    print("| collapses of one arm | what is equal | rule | 8 seeds | 16 | 24 | any look |")
    print("| ---: | --- | --- | ---: | ---: | ---: | ---: |")
    cells = [(share, equal, draws) for equal in (True, False) for share in ONE_SIDED if share or not equal]
    with ProcessPoolExecutor(processes) as pool:
        for (share, equal, _), alarm_rates in zip(cells, pool.map(one_sided, cells), strict=True):
            rows = {
                "former: t at .02": alarm_rates.former,
                "two-part: Fisher at .01": alarm_rates.share,
                "two-part: Welch at .01": alarm_rates.score,
                "two-part: either": alarm_rates.either,
            }
            for rule, alarms in rows.items():
                equal_part = "means of all runs" if equal else "runs that held"
                print(
                    f"| {share:.0%} | {equal_part} | {rule} | {' | '.join(f'{alarm:.3f}' for alarm in alarms)} |",
                    flush=True,
                )


def _inside(q: np.ndarray) -> np.ndarray:
    return q.clip(1e-12, 1 - 1e-12)


def _shifted(q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    odds = np.log(q / (1 - q)) + rng.normal(THETA, 0.5, q.shape)
    return np.asarray(1 / (1 + np.exp(-odds)))


def _attempts(q_M: np.ndarray, n: int, rng: np.random.Generator) -> Sequence[Sequence[float]]:
    table: Sequence[Sequence[float]] = (rng.random((q_M.size, n)) < q_M[:, None]).astype(float).tolist()
    return table


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=["one-sided"])
    arguments = parser.parse_args()
    if arguments.only:
        print(f"{arguments.draws} data sets a cell\n")
        _one_sided(arguments.draws, arguments.processes)
        return
    with ProcessPoolExecutor(arguments.processes) as pool:
        print(f"{arguments.draws} data sets a cell\n")
        print("| q ~ Beta | tasks | attempts | coverage | false alarms |\n| --- | ---: | ---: | ---: | ---: |")
        cells = [(*cell, arguments.draws) for cell in product(SHAPES, TASKS, ATTEMPTS)]
        for (shape, m, n, _), (covered, alarms) in zip(cells, pool.map(checkpoints, cells), strict=True):
            print(f"| {shape} | {m} | {n} | {covered:.3f} | {alarms:.3f} |", flush=True)
        print("\n| seeds | deviation | collapsed | t over seeds covers | one run each, over tasks: false alarms |")
        print("| ---: | ---: | ---: | ---: | ---: |")
        runs = [(*cell, arguments.draws) for cell in product(SEEDS, DEVIATIONS, COLLAPSED)]
        for (seeds, deviation, collapsed, _), (covered, alarms) in zip(runs, pool.map(recipes, runs), strict=True):
            print(f"| {seeds} | {deviation} | {collapsed:.0%} | {covered:.3f} | {alarms:.3f} |", flush=True)
    print()
    _one_sided(arguments.draws, arguments.processes)


if __name__ == "__main__":
    main()
