"""What each shipped recipe adds to its cold start on the laptop profile, from `gains.csv`.

`python -m lab.pages.recipes` makes the file from data/recipes/runs.csv.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".csv")


@dataclass(frozen=True, slots=True)
class Gain:
    """The gain of a recipe's last checkpoint over its cold start, on held-out tasks of the laptop's sizes.

    gyms: those that are evaluated. estimate, low, high: mean over seeds of the difference in score, with its 95 % limits
    (Student's t). cpu_seconds: median of a run.
    """

    gyms: tuple[str, ...]
    seeds: int
    estimate: float
    low: float
    high: float
    cpu_seconds: float


@cache
def gains() -> dict[str, Gain]:
    """Return the measured gains by recipe. Recipes without RL, and those not measured with their present values, are absent."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return {row.pop("recipe"): _gain(row) for row in csv.DictReader(file)}


def _gain(row: dict[str, str]) -> Gain:
    estimate, low, high, seconds = (float(row[key]) for key in ("gain", "low", "high", "cpu_seconds"))
    return Gain(tuple(row["gyms"].split()), int(row["seeds"]), estimate, low, high, seconds)
