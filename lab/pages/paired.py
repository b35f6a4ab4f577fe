"""Arms of a registered study, paired by seed: differences with Student's limits, their verdicts, and lines of a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from analysis.measure.interval import Interval, t_interval
from lab.pages.data_tables import with_lines
from lab.rows import DATA, read_rows
from lab.studies.registered import plans, read_plan
from userrl.reports.figures import Line, Panel, panels
from userrl_core.number_format import NULL, number, with_limits

STUDIES = Path(__file__).parents[1] / "studies"
BySeed = Mapping[int, float]
"""A value by seed."""
Rows = Sequence[Mapping[str, Any]]


def read_study(name: str) -> tuple[dict[str, Any], list[dict[str, Any]], Path]:
    """Return the plan of a study, the rows of its runs, and the folder of its page."""
    path = STUDIES / f"{name}.yaml"
    plan = read_plan(path)
    file = DATA / plan["data"]
    return plan, [row for row in read_rows(file) if row["plan"] in plans(path)], file.parent


def rewrite(folder: Path, script: str, lines: Sequence[str], drawn: Sequence[Panel]) -> None:
    """Write the tables into the marked part of a folder's page, and the picture beside it once there is a panel."""
    page = folder / "README.md"
    page.write_text(with_lines(page.read_text(), script, lines))
    if drawn:
        panels(drawn, path=folder / "scores.svg")


def with_runs(plan: Mapping[str, Any], rows: Rows) -> tuple[list[str], str]:
    """Return the families of a plan that have all of their runs, and a sentence about the others.

    A family in work is in no table: to look before the last run could decide when to stop.
    """
    planned = sum(len(block["arms"]) * block["seeds"] for block in plan.get("blocks", {}).values())
    played = {
        name: {(row.get("reward"), row["arm"], row["seed"]) for row in rows if row["family"] == name}
        for name in plan["families"]
    }
    families = [name for name, runs in played.items() if runs and len(runs) >= planned]
    without = [name for name, runs in played.items() if not runs]
    begun = [f"{name} ({len(runs)} of {planned})" for name, runs in played.items() if 0 < len(runs) < planned]
    sentence = f"Families without runs: {', '.join(without) or 'none'}."
    return families, sentence + (f" In work, with their runs so far: {', '.join(begun)}." if begun else "")


def together(families: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return what an endpoint is given for, with its families: ``all`` where there are several, then each one."""
    every = [("all", list(families))] if len(families) > 1 else []
    return [*every, *((family, [family]) for family in families)]


def mean_of(values: Sequence[BySeed]) -> dict[int, float]:
    """Return the mean of several values of each seed, for the seeds that have all of them."""
    seeds = set.intersection(*(set(by_seed) for by_seed in values)) if values else set()
    return {seed: fmean(by_seed[seed] for by_seed in values) for seed in sorted(seeds)}


def difference(more: BySeed, than: BySeed) -> Interval | None:
    """Return the difference of two arms over the seeds that both have, with Student's 95 % limits; None without such seeds."""
    seeds = sorted({*more} & {*than})
    return t_interval(np.array([more[seed] - than[seed] for seed in seeds])) if seeds else None


def verdict(interval: Interval | None, margin: float) -> str:
    """Return what the limits say: equivalent if both are within the margin, and the sign if both have the same; else undecided."""
    if interval is None:
        return NULL
    within = ["equivalent"] if -margin < interval.low and interval.high < margin else []
    sign = ["higher"] if interval.low > 0 else ["lower"] if interval.high < 0 else []
    return ", ".join(within + sign) or "undecided"


def cells(interval: Interval | None, margin: float) -> str:
    """Return difference, seeds and verdict as cells of a table."""
    text = NULL if interval is None else with_limits(interval, sign=True)
    return f"{text} | {interval.units if interval else 0} | {verdict(interval, margin)}"


def mean_text(by_seed: BySeed | None) -> str:
    """Return the mean over seeds; a dash without seeds."""
    return number(fmean(by_seed.values()) if by_seed else None)


def line(name: str, points: Mapping[int, BySeed], *, band: bool) -> Line:
    """Return a line of means over seeds. band: with Student's 95 % limits where there are two seeds or more."""
    limits = {x: t_interval(np.array(list(by_seed.values()))) for x, by_seed in sorted(points.items()) if by_seed}
    shaded = [(x, limit.low, limit.high) for x, limit in limits.items() if band and limit.units > 1]
    return Line(name, [(x, limit.estimate) for x, limit in limits.items()], band=shaded, markers=True)
