"""How often the gate passes a candidate that is worse by exactly the margin: ``python -m benchmarks.gate [--write]``.

The rule is "not worse by more than .02" at level .05. The candidate's true difference is -.02, so every PASS is false. Each
cell has 2,000 simulated data sets. Shares above .05 by more than chance (.06) break the promise.

*breaks*: both sides have the same score, but the candidate fails 2 % of the tasks. *trades*: it gains .01 on most tasks and
fails 3 % of them. *verdicts*: q_i ~ Beta(.5, .5), the candidate succeeds with .96 q_i. *easy*: the same with q_i ~ Beta(9.7, .3).
*scores*: 0 in 30 % and 1 in 40 % of the tasks, uniform otherwise; the candidate gets 0 where it fails. *costs*: lognormal
costs whose true geometric ratio is the allowed one, 1.2; the last column is Student's t of the sums.

The columns compare the gate with Student's t and with the t limits of ``userrl compare`` (two made-up tasks below 100
verdicts). ``--write`` stores the table in data/gate/false-pass.csv.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

from userrl_core.measure.bounded import p_above
from userrl_core.measure.gate import ratio_at_most

LEVEL, MARGIN, RATIO, DRAWS = 0.05, 0.02, 1.2, 2000
TASKS, ATTEMPTS = (50, 150, 400), (1, 4)
TABLE = Path(__file__).parent.parent / "data" / "gate" / "false-pass.csv"
COLUMNS = ("candidate", "tasks", "attempts", "gate", "t of compare", "Student's t")

Sides = tuple[np.ndarray, np.ndarray]


def breaks(m: int, n: int, rng: np.random.Generator) -> Sides:
    a_MN = np.ones((m, n))
    return a_MN, np.where(rng.random((m, 1)) < MARGIN, 0.0, a_MN)


def trades(m: int, n: int, rng: np.random.Generator) -> Sides:
    a_MN = np.full((m, n), 0.9)
    lost = (MARGIN + 0.01) / (0.9 + 0.01)
    return a_MN, np.where(rng.random((m, 1)) < lost, 0.0, a_MN + 0.01)


def verdicts(m: int, n: int, rng: np.random.Generator, shape: tuple[float, float] = (0.5, 0.5)) -> Sides:
    q_M1 = rng.beta(*shape, (m, 1))
    kept = 1 - MARGIN / (shape[0] / sum(shape))
    return (rng.random((m, n)) < q_M1).astype(float), (rng.random((m, n)) < kept * q_M1).astype(float)


def easy(m: int, n: int, rng: np.random.Generator) -> Sides:
    return verdicts(m, n, rng, (9.7, 0.3))


def scores(m: int, n: int, rng: np.random.Generator) -> Sides:
    kind_M1, inner_M1 = rng.random((m, 1)), rng.random((m, 1))
    a_M1 = np.where(kind_M1 < 0.3, 0.0, np.where(kind_M1 < 0.7, 1.0, inner_M1))
    return np.repeat(a_M1, n, axis=1), np.where(rng.random((m, n)) < MARGIN / 0.55, 0.0, a_M1)


CANDIDATES: tuple[Callable[[int, int, np.random.Generator], Sides], ...] = (breaks, trades, verdicts, easy, scores)


def false_passes(
    candidate: Callable[[int, int, np.random.Generator], Sides], m: int, n: int, draws: int
) -> list[float]:
    """Return the shares of data sets that pass: by the gate, by the t limits of compare, by Student's t."""
    rng = np.random.default_rng(0)
    passes = np.zeros(3)
    for _ in range(draws):
        a, b = candidate(m, n, rng)
        d_M = b.mean(1) - a.mean(1)
        low = difference_low(a, b)
        error = float(d_M.std(ddof=1)) / math.sqrt(m)
        student = float(d_M.mean()) - float(stats.t.ppf(1 - LEVEL, m - 1)) * error
        passes += p_above(d_M, -MARGIN, -1.0) <= LEVEL, low > -MARGIN, student > -MARGIN
    return [float(share) for share in passes / draws]


def difference_low(a: np.ndarray, b: np.ndarray) -> float:
    """Return the lower one-sided limit by the method of ``userrl compare``, without its exact test."""
    d_M = b.mean(1) - a.mean(1)
    verdicts_only = bool(np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all())
    one = 1 / a.shape[1]
    padded = np.append(d_M, [one, -one]) if verdicts_only and (len(d_M) < 100 or np.ptp(d_M) == 0) else d_M
    half = float(stats.t.ppf(1 - LEVEL, padded.size - 1) * padded.std(ddof=1)) / math.sqrt(padded.size)
    return float(min(padded.mean() - half, d_M.mean()))


def false_passes_of_costs(m: int, draws: int) -> list[float]:
    rng = np.random.default_rng(0)
    passes = np.zeros(3)
    for _ in range(draws):
        a_M = rng.lognormal(0, 1, m)
        ratio_M = rng.lognormal(0, 1, m)
        b_M = RATIO * a_M * ratio_M
        d_M = b_M / math.exp(0.5) - RATIO * a_M
        student = stats.ttest_1samp(d_M, 0, alternative="less").pvalue <= LEVEL
        passes += ratio_at_most(a_M.tolist(), b_M.tolist(), RATIO, LEVEL).answer == "PASS", student, student
    return [float(passes[0] / draws), math.nan, float(passes[2] / draws)]


def table(draws: int) -> list[list[str]]:
    rows = [
        [candidate.__name__, str(m), str(n), *(f"{share:.4f}" for share in false_passes(candidate, m, n, draws))]
        for candidate in CANDIDATES
        for m in TASKS
        for n in ATTEMPTS
    ]
    return rows + [
        ["costs", str(m), "1", *("" if math.isnan(s) else f"{s:.4f}" for s in false_passes_of_costs(m, draws))]
        for m in TASKS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--write", action="store_true")
    wanted = parser.parse_args()
    rows = table(wanted.draws)
    print(*("  ".join(f"{cell:>12}" for cell in row) for row in (COLUMNS, *rows)), sep="\n")
    if wanted.write:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        with TABLE.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
