"""The simulations of the gate: false passes at the bound, and the tables of data/gate/README.md."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

from analysis.measure.bounded import p_above
from lab.benchmarks.gate import (
    CAPS,
    FOLDER,
    LEVEL,
    MARGIN,
    RATIO,
    RATIOS,
    TABLE,
    base_ratio,
    breaks,
    costs_of_a,
    passes_of_families,
    passes_over_seeds,
    trades,
)

BY_CHANCE = LEVEL + 2.5 * math.sqrt(LEVEL * (1 - LEVEL) / 2000)
"""Largest share of 2,000 false passes that a true share of .05 has by chance."""


def stored(name: str) -> list[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("candidate", [breaks, trades])
def test_a_candidate_at_the_bound_passes_at_most_as_often_as_the_level(candidate) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    passes = 0
    for _ in range(250):
        a, b = candidate(150, 1, rng)
        passes += p_above((b - a).mean(1), -MARGIN, -1.0) <= LEVEL
    assert passes / 250 <= LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / 250)


def test_the_committed_simulation_keeps_the_level() -> None:
    with TABLE.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30
    assert max(float(row["gate"]) for row in rows) <= BY_CHANCE
    assert max(float(row["Student's t"]) for row in rows if row["candidate"] == "breaks") > 0.3


@pytest.mark.parametrize("candidate", ["fiftieth", "long"])
def test_a_total_at_the_bound_passes_at_most_as_often_as_the_level(candidate: str) -> None:
    rng, base, draws = np.random.default_rng(1), base_ratio(RATIOS[candidate], RATIO, CAPS[0]), 120
    passes = 0
    for _ in range(draws):
        a = costs_of_a(150, rng)
        b = np.minimum(base * a * RATIOS[candidate](a, rng), CAPS[0])
        passes += p_above(RATIO * a - b, 0.0, -CAPS[0]) <= LEVEL
    assert passes / draws <= LEVEL + 2 * math.sqrt(LEVEL * (1 - LEVEL) / draws)


def test_the_committed_tables_keep_the_level() -> None:
    costs, seeds, families = stored("costs"), stored("seeds"), stored("families")
    assert (len(costs), len(seeds), len(families)) == (33, 52, 16)
    assert max(float(row["gate"]) for row in costs) <= 0.06
    assert max(float(row["former"]) for row in costs) > 0.3
    assert max(float(row["gate, no difference"]) for row in costs) > 0.8
    at_bound = [row for row in seeds if row["candidate"] == "held at the bound"]
    assert max(float(row["gate"]) for row in at_bound) <= BY_CHANCE
    assert max(float(row["gate, limited"]) for row in seeds if row["share"] == "0.1") <= BY_CHANCE
    assert max(float(row["families"]) for row in families) <= BY_CHANCE
    assert max(float(row["tasks as units"]) for row in families) > 0.5


def test_a_rule_over_seeds_keeps_its_level_for_the_runs_that_held() -> None:
    former, gate, limited = passes_over_seeds("collapses", 0.05, None, 8, 1000)
    assert former > 0.3  # the mean of all runs is at the bound, and t sees no collapse in two thirds of the cases
    assert limited == 0.0  # eight seeds do not show a share of at most .1
    assert gate > former  # the runs that hold are better, and the rule is about them
    assert passes_over_seeds("collapses", 0.05, -MARGIN, 8, 1000)[1] <= LEVEL + 0.015


def test_families_at_the_bound_pass_at_most_as_often_as_the_level() -> None:
    tasks, families = passes_of_families("breaks", "five", 150, MARGIN, 300)
    assert tasks > 0.4
    assert families <= LEVEL


def test_the_tables_of_the_docs_are_the_committed_ones() -> None:
    page = (FOLDER / "README.md").read_text()
    costs, seeds, families = stored("costs"), stored("seeds"), stored("families")

    def cell(rows: list[dict[str, str]], column: str) -> str:
        return " ".join(f"{float(row[column]):.3f}".removeprefix("0") for row in rows)

    for name, cap in {(row["candidate"], row["cap"]) for row in costs if row["cap"] != "60"}:
        rows = [row for row in costs if (row["candidate"], row["cap"]) == (name, cap)]
        cells = " | ".join(cell(rows, column) for column in ("gate", "former", "gate, no difference"))
        assert f"| {cap} | {cells} |" in page
    for share in ("0", "0.05", "0.1", "0.2"):
        for n in ("8", "32", "64"):
            every, held, equal = (
                [row for row in seeds if (row["share"], row["seeds"], row["candidate"]) == (share, n, which)]
                for which in ("all at the bound", "held at the bound", "equal")
            )
            shown = [(every, "former"), (held, "gate"), (every, "gate"), (every, "gate, limited"), (equal, "gate")]
            cells = " | ".join(cell(rows, column) for rows, column in shown)
            assert f"| {float(share):.0%} | {n} | {cells} |".replace("%", " %") in page
    for row in families:
        if (row["candidate"], row["variants"]) == ("breaks", "five"):
            cells = " | ".join(
                cell([row], column) for column in ("tasks as units", "families", "families, no difference")
            )
            assert f"| {int(row['tasks']):,} | {cells} |" in page
