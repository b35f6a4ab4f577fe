"""The intervals of data/results are those of its rows."""

from __future__ import annotations

import csv

import numpy as np

from analysis.measure.interval import t_interval
from tests.places import ROOT
from userrl_core.number_format import with_limits

RESULTS = ROOT / "data" / "results"


def rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_differences_of_ten_seeds_follow_from_their_rows() -> None:
    page = (RESULTS / "README.md").read_text()
    for more, less in [
        ("short_stage", "short_first"),
        ("longer_stage", "longer_first"),
        ("longer_depth_3_best", "short_depth_3_best"),
        ("longer_depth_3_last", "short_depth_3_last"),
    ]:
        differences = np.array([float(row[more]) - float(row[less]) for row in rows("ten-seeds")])
        assert f" {with_limits(t_interval(differences))}." in page, (more, less)


def test_the_differences_of_four_schedules_follow_from_their_rows() -> None:
    page = (RESULTS / "README.md").read_text()
    last = {(row["arm"], row["seed"]): float(row["last"]) for row in rows("four-schedules")}
    for arm in ("fixed-short", "fixed-long", "adaptive"):
        differences = np.array([last["scaling-inter", seed] - last[arm, seed] for seed in "12345"])
        assert f"- `scaling-inter` less `{arm}`, last step: {with_limits(t_interval(differences))}." in page
