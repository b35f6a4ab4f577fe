"""The coverage of our intervals: ``python -m benchmarks.intervals [--draws 10000] [--processes 2]``.

*Checkpoints*: agent A solves task i with probability q_i ~ Beta(a, b), agent B with logistic(logit q_i + N(theta, .5^2)),
theta .3; under the null, B's probability equals A's. Prints the coverage of the paired difference over tasks, and the
false alarms of the exact test at 5 %.

*Recipes*: a run's score is its arm's mean plus its seed's deviation, measured on 400 tasks; some seeds collapse to .1.
Prints the coverage of t over paired seed differences, and that of the interval over the tasks of one run per arm.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from userrl_core.measure.checkpoints import difference
from userrl_core.measure.recipes import contrast

SHAPES = ((0.5, 0.5), (0.3, 0.7), (0.05, 0.45))
TASKS, ATTEMPTS, THETA = (40, 50, 115, 400), (1, 4), 0.3
SEEDS, DEVIATIONS, COLLAPSED = (3, 5, 8, 16, 25), (0.05, 0.07), (0.0, 0.1, 0.3)
RUN_TASKS, FLOOR = 400, 0.1


def checkpoints(cell: tuple[tuple[float, float], int, int, int]) -> tuple[float, float]:
    """Return coverage and false alarms of one cell: shape of q, tasks, attempts, draws."""
    (a, b), m, n, draws = cell
    rng = np.random.default_rng(0)
    q = _inside(rng.beta(a, b, 10**6))
    true = float((_shifted(q, rng) - q).mean())
    covered = alarms = 0
    for _ in range(draws):
        q_M = _inside(rng.beta(a, b, m))
        found = difference(_attempts(q_M, n, rng), _attempts(_shifted(q_M, rng), n, rng)).interval
        covered += found.low <= true <= found.high
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
        found = contrast(*scores).interval
        covered += found.low <= 0 <= found.high
        first = difference(*([[verdict] for verdict in arm[0]] for arm in runs)).interval
        alarms += not first.low <= 0 <= first.high
    return covered / draws, alarms / draws


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
    given = parser.parse_args()
    with ProcessPoolExecutor(given.processes) as pool:
        print(f"{given.draws} data sets a cell\n")
        print("| q ~ Beta | tasks | attempts | coverage | false alarms |\n| --- | ---: | ---: | ---: | ---: |")
        cells = [(*cell, given.draws) for cell in product(SHAPES, TASKS, ATTEMPTS)]
        for (shape, m, n, _), (covered, alarms) in zip(cells, pool.map(checkpoints, cells), strict=True):
            print(f"| {shape} | {m} | {n} | {covered:.3f} | {alarms:.3f} |", flush=True)
        print("\n| seeds | deviation | collapsed | t over seeds covers | one run each, over tasks: false alarms |")
        print("| ---: | ---: | ---: | ---: | ---: |")
        runs = [(*cell, given.draws) for cell in product(SEEDS, DEVIATIONS, COLLAPSED)]
        for (seeds, deviation, collapsed, _), (covered, alarms) in zip(runs, pool.map(recipes, runs), strict=True):
            print(f"| {seeds} | {deviation} | {collapsed:.0%} | {covered:.3f} | {alarms:.3f} |", flush=True)


if __name__ == "__main__":
    main()
