"""How often the gate passes a candidate at its bound: ``python -m lab.benchmarks.gate [--only scores] [--write]``.

The level is .05, so at most .05 of these data sets may pass. Shares above it by more than chance (.06) break the promise. A rule
that never passes keeps it too, so candidates without a difference stand beside them. Each cell has 2,000 simulated data sets.

*scores*: "not worse by more than .02", and the true difference is -.02. *breaks*: both sides have the same score, but the
candidate fails 2 % of the tasks. *trades*: it gains .01 on most tasks and fails 3 % of them. *verdicts*: q_i ~ Beta(.5, .5), the
candidate succeeds with .96 q_i. *easy*: the same with q_i ~ Beta(9.7, .3). *scores*: 0 in 30 % and 1 in 40 % of the tasks,
uniform otherwise; the candidate gets 0 where it fails. The columns compare the gate with Student's t and with the t limits of
``userrl compare`` (two made-up tasks below 100 verdicts).

*costs*: "cost at most 1.2 x", and the candidate's total is 1.2 x. A's costs are lognormal (sigma .5) with mean 1, and no
conversation costs more than the cap. *even*, *lognormal*: lognormal ratios by task (sigma .2, 1). *tenth*: 10 % of the tasks are 3
x dearer. *fiftieth*: 2 % are 11 x dearer. *long*: the ratio of a task is proportional to A's cost. The columns compare the gate
with its former test (Student's t of the logarithms of the ratios, and sums within 1.2) and with Student's t of the totals.

*seeds*: "not worse by more than .02" over seeds. A's runs have .846, deviation .04. Some runs of the candidate collapse to .1. *all
at the bound*: the mean of all its runs is .02 below, so its runs that hold are higher. *held at the bound*: the mean of its runs
that hold is .02 below. *equal*: its runs that hold are equal. *sags*: its runs fall by .09, which is no collapse. *limited*: the
policy also has ``collapsed: {at_most: .1}``. *former*: t until a seed collapses, then the limits of ``bounded``.

*seed-costs*: "cost at most 1.2 x" over seeds, and the mean over runs is 1.2 x. *even*: run means are lognormal (sigma .1). *rare*:
5 % of the candidate's runs are 3 x dearer.

*families*: "not worse by more than .02" with families of five variants, or of one to nine. In 2 % of the families all variants
fail (*breaks*), or a family's variants share q ~ Beta(.5, .5) and the candidate succeeds with .96 q (*verdicts*).

``--write`` stores the tables in data/gate, with the machine in made.json. The generators have seed 0.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from analysis.measure.bounded import p_above

LEVEL, MARGIN, RATIO, DRAWS = 0.05, 0.02, 1.2, 2000
TASKS, ATTEMPTS = (50, 150, 400), (1, 4)
CAPS, LARGE = (8.0, 20.0), 60.0
STABLE, DEVIATION, FLOOR, SAG, MOST = 0.846, 0.04, 0.1, 0.09, 0.1
SEEDS, COLLAPSES = (8, 16, 32, 64), (0.0, 0.05, 0.1, 0.2)
FAMILY_TASKS, VARIANTS = (50, 150, 400, 1000), 5
FOLDER = Path(__file__).parents[2] / "data" / "gate"
TABLE = FOLDER / "false-pass.csv"

Rows = Iterator[tuple[object, ...]]

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
    share = 1 - MARGIN / (shape[0] / sum(shape))
    return (rng.random((m, n)) < q_M1).astype(float), (rng.random((m, n)) < share * q_M1).astype(float)


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
    step = 1 / a.shape[1]
    padded = np.append(d_M, [step, -step]) if verdicts_only and (len(d_M) < 100 or np.ptp(d_M) == 0) else d_M
    half = float(stats.t.ppf(1 - LEVEL, padded.size - 1) * padded.std(ddof=1)) / math.sqrt(padded.size)
    return float(min(padded.mean() - half, d_M.mean()))


Ratios = Callable[[np.ndarray, np.random.Generator], np.ndarray]
RATIOS: dict[str, Ratios] = {
    "even": lambda a_M, rng: rng.lognormal(0, 0.2, a_M.size),
    "lognormal": lambda a_M, rng: rng.lognormal(0, 1, a_M.size),
    "tenth": lambda a_M, rng: np.where(rng.random(a_M.size) < 0.1, 3.0, 1.0),
    "fiftieth": lambda a_M, rng: np.where(rng.random(a_M.size) < 0.02, 11.0, 1.0),
    "long": lambda a_M, rng: a_M,
}


def costs_of_a(m: int, rng: np.random.Generator) -> np.ndarray:
    return rng.lognormal(-0.125, 0.5, m).clip(max=min(CAPS))


def base_ratio(ratios: Ratios, total: float, cap: float) -> float:
    """Return the factor of the ratios at which B's total is `total` x A's although no conversation costs more than the cap."""
    rng = np.random.default_rng(1)
    a_M = costs_of_a(1_000_000, rng)
    b_M = a_M * ratios(a_M, rng)
    return float(brentq(lambda x: np.minimum(x * b_M, cap).mean() - total * a_M.mean(), 0.01, 20))


def passes_of_costs(ratios: Ratios, m: int, cap: float, total: float, draws: int) -> list[float]:
    """Return the shares of data sets that pass: by the gate, by its former test, by Student's t of the totals."""
    rng, base = np.random.default_rng(0), base_ratio(ratios, total, cap)
    critical_t = float(stats.t.ppf(1 - LEVEL, m - 1))
    passes = np.zeros(3)
    for _ in range(draws):
        a_M = costs_of_a(m, rng)
        b_M = np.minimum(base * a_M * ratios(a_M, rng), cap)
        kept_M = RATIO * a_M - b_M
        former = _t(math.log(RATIO) - np.log(b_M / a_M)) >= critical_t and kept_M.sum() >= 0
        passes += p_above(kept_M, 0.0, -cap) <= LEVEL, former, _t(kept_M) >= critical_t
    return [float(share) for share in passes / draws]


def _t(values_M: np.ndarray) -> float:
    return float(values_M.mean() / values_M.std(ddof=1)) * math.sqrt(values_M.size)


def passes_over_seeds(kind: str, share: float, gap: float | None, n: int, draws: int) -> list[float]:
    """Return the shares of data sets that pass: by the former test, by the gate, by the gate with a limit of the share.

    kind: collapses or sags. gap: B - A of the runs that hold; None: the mean of all runs is at the bound.
    """
    rng = np.random.default_rng(0)
    lost = SAG if kind == "sags" else STABLE - FLOOR
    if gap is None:  # a collapsed run has .1 whatever the others have, a run that sags has .09 less than them
        gap = -MARGIN + share * lost if kind == "sags" else (share * lost - MARGIN) / (1 - share)
    a_DS, b_DS = (rng.normal(mean, DEVIATION, (draws, n)).clip(0, 1) for mean in (STABLE, STABLE + gap))
    hit_DS = rng.random((draws, n)) < share
    b_DS = np.where(hit_DS, b_DS - SAG if kind == "sags" else FLOOR, b_DS)
    fell_DS = hit_DS & (kind == "collapses")
    everything_DS = b_DS - a_DS + MARGIN
    held_DS = np.where(fell_DS, np.nan, everything_DS)
    gate_D = _student(held_DS) & ((~fell_DS).sum(1) >= 4)
    former_D = _student(everything_DS)
    for draw in np.flatnonzero(fell_DS.any(1)):
        former_D[draw] = p_above(everything_DS[draw], 0.0, -1.0 + MARGIN) <= LEVEL
    limited_D = gate_D & (stats.binom.cdf(fell_DS.sum(1), n, MOST) <= LEVEL)
    return [float(passed.mean()) for passed in (former_D, gate_D, limited_D)]


def _student(values_DS: np.ndarray) -> np.ndarray:
    counts_D = (~np.isnan(values_DS)).sum(1)
    error_D = np.nanstd(values_DS, axis=1, ddof=1) / np.sqrt(counts_D)
    passed: np.ndarray = stats.t.sf(np.nanmean(values_DS, axis=1) / error_D, counts_D - 1) <= LEVEL
    return passed


def passes_of_families(candidate: str, sizes: str, m: int, margin: float, draws: int) -> list[float]:
    """Return the shares of data sets that pass: with tasks as units, and with families as units."""
    rng = np.random.default_rng(0)
    passes = np.zeros(2)
    for _ in range(draws):
        families = m // VARIANTS
        sizes_C = np.full(families, VARIANTS) if sizes == "five" else rng.integers(1, 2 * VARIANTS, families)
        of_M = np.repeat(np.arange(families), sizes_C)
        if candidate == "breaks":
            d_M = -(rng.random(families) < margin).astype(float)[of_M]
        else:
            q_M = rng.beta(0.5, 0.5, families)[of_M]
            d_M = (rng.random(of_M.size) < (1 - 2 * margin) * q_M).astype(float) - (rng.random(of_M.size) < q_M)
        total_C = np.bincount(of_M, weights=d_M + MARGIN)
        tasks = p_above(d_M, -MARGIN, -1.0) <= LEVEL
        passes += tasks, p_above(total_C, 0.0, -float(sizes_C.max()) * (1 - MARGIN)) <= LEVEL
    return [float(share) for share in passes / draws]


def scores_table(draws: int) -> Rows:
    yield "candidate", "tasks", "attempts", "gate", "t of compare", "Student's t"
    for candidate in CANDIDATES:
        for m in TASKS:
            for n in ATTEMPTS:
                yield candidate.__name__, m, n, *false_passes(candidate, m, n, draws)


def costs_table(draws: int) -> Rows:
    yield "candidate", "cap", "tasks", "gate", "former", "t of totals", "gate, no difference"
    for name, ratios in RATIOS.items():
        for cap in (*CAPS, *((LARGE,) if name == "lognormal" else ())):
            for m in TASKS:
                at_bound = passes_of_costs(ratios, m, cap, RATIO, draws)
                yield name, f"{cap:g}", m, *at_bound, passes_of_costs(ratios, m, cap, 1.0, draws)[0]


def seeds_table(draws: int) -> Rows:
    yield "share", "seeds", "candidate", "former", "gate", "gate, limited"
    for share in COLLAPSES:
        for n in SEEDS:
            for name, gap in (("all at the bound", None), ("held at the bound", -MARGIN), ("equal", 0.0)):
                yield f"{share:g}", n, name, *passes_over_seeds("collapses", share, gap, n, draws)
    for n in SEEDS:
        yield "0.1", n, "sags, all at the bound", *passes_over_seeds("sags", 0.1, None, n, draws)


def seed_costs_table(draws: int) -> Rows:
    """Yield the passes of ``cost at most 1.2 x`` over seeds, by Student's t of the totals."""
    yield "candidate", "seeds", "gate", "gate, no difference"
    for name, rare in (("even", 0.0), ("rare", 0.05)):
        for n in SEEDS:
            shares = []
            for total in (RATIO, 1.0):
                rng = np.random.default_rng(0)
                a_DS, b_DS = (rng.lognormal(-0.005, 0.1, (draws, n)) for _ in "ab")
                b_DS *= total * np.where(rng.random((draws, n)) < rare, 3.0, 1.0) / (1 + 2 * rare)
                shares.append(float(_student(RATIO * a_DS - b_DS).mean()))
            yield name, n, *shares


def families_table(draws: int) -> Rows:
    yield "candidate", "variants", "tasks", "tasks as units", "families", "families, no difference"
    for candidate in ("breaks", "verdicts"):
        for sizes in ("five", "one to nine"):
            for m in FAMILY_TASKS:
                at_bound = passes_of_families(candidate, sizes, m, MARGIN, draws)
                yield candidate, sizes, m, *at_bound, passes_of_families(candidate, sizes, m, 0.0, draws)[1]


TABLES: dict[str, tuple[Callable[[int], Rows], Path]] = {
    "scores": (scores_table, TABLE),
    "costs": (costs_table, FOLDER / "costs.csv"),
    "seeds": (seeds_table, FOLDER / "seeds.csv"),
    "seed-costs": (seed_costs_table, FOLDER / "seed-costs.csv"),
    "families": (families_table, FOLDER / "families.csv"),
}


def shown(rows: Rows) -> Iterator[list[str]]:
    """Yield the rows as text, and print each when it is known."""
    for row in rows:
        cells = [f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row]
        print("  ".join(f"{cell:>12}" for cell in cells), flush=True)
        yield cells


def store(path: Path, rows: Iterable[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else TABLES:
        table, path = TABLES[name]
        rows = list(shown(table(arguments.draws)))
        if arguments.write:
            store(path, rows)
    if arguments.write:
        provenance = {
            "command": "python -m lab.benchmarks.gate --write",
            "draws": arguments.draws,
            "seed": 0,
            "machine": machine(),
        }
        (FOLDER / "made.json").write_text(json.dumps(provenance, indent=1) + "\n")


if __name__ == "__main__":
    main()
