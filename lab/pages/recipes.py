"""Make curricula/gains.csv and the table of data/recipes/README.md from data/recipes/runs.csv.

python -m lab.pages.recipes

Rows of a recipe's present values count: those whose `values` is the hash of the recipe under the laptop profile.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

import curricula
from analysis.measure.interval import MIN_SEEDS, Interval, t_interval
from curricula.gains import FILE
from lab.pages.data_tables import ROOT, with_tables
from lab.rows import read_rows
from lab.studies.all_recipes import RUNS, values_of
from userrl_core.number_format import number, with_limits

PAGE = ROOT / "data" / "recipes" / "README.md"
TABLE = PAGE.with_name("table.csv")

Row = tuple[Any, ...]


def main() -> None:
    """Write the files."""
    shipped, rows = made(read_rows(RUNS))
    _write(FILE, shipped)
    _write(TABLE, rows)
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def made(runs: Sequence[Mapping[str, Any]]) -> tuple[list[Row], list[Row]]:
    """Return the rows of the shipped file and of the table, with their heads."""
    measured = {name: rows for name in curricula.recipe_names() if (rows := present(name, runs))}
    trained = {name: rows for name, rows in measured.items() if rows[0]["last"] is not None}
    gains = {name: gain(rows) for name, rows in trained.items()}
    head = ("recipe", "gyms", "seeds", "gain", "low", "high", "cpu_seconds")
    return [head, *(shipped_row(name, trained[name], gains[name]) for name in trained)], list(table(measured, gains))


def _write(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def present(name: str, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of a recipe's present values; nothing while they are too few for limits."""
    recipe = curricula.load(name, profile="laptop", check=False)
    chosen = [row for row in rows if row["recipe"] == name and row["values"] == values_of(recipe)]
    return chosen if len(chosen) >= MIN_SEEDS else []


def gain(rows: Sequence[Mapping[str, Any]]) -> Interval:
    """Return the mean difference over seeds between the last checkpoint and the cold start."""
    return t_interval(np.array([row["last"] - row["start"] for row in rows]))


def shipped_row(name: str, rows: Sequence[Mapping[str, Any]], difference: Interval) -> Row:
    """Return the row of the shipped file."""
    limits = (f"{value:.4f}" for value in (difference.estimate, difference.low, difference.high))
    seconds = median(row["cpu_seconds"] for row in rows)
    return (name, " ".join(by_gym(rows[0]["start_by_gym"])), len(rows), *limits, round(seconds))


def table(
    measured: Mapping[str, Sequence[Mapping[str, Any]]], gains: Mapping[str, Interval]
) -> Iterator[tuple[str, ...]]:
    """Yield the head and a row a recipe. Scores are means over seeds, of all gyms and of each."""
    yield ("recipe", "cold start", "best", "last", "last - cold start", "above in", "CPU-s", "control")
    for name, rows in measured.items():
        scores = [scored(rows, column) for column in ("start", "best", "last")]
        above = f"{sum(row['last'] > row['start'] for row in rows)} of {len(rows)}" if name in gains else ""
        difference = with_limits(gains[name], sign=True) if name in gains else "no RL"
        seconds = f"{median(row['cpu_seconds'] for row in rows):.0f}"
        yield (f"`{name}`", *scores, difference, above, seconds, control_of(name))


def control_of(name: str) -> str:
    """Return why a recipe is expected to fail on the laptop profile, or an empty text."""
    return curricula.load(name, profile="laptop", check=False).control


def scored(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    """Return the mean score over seeds, and of each gym where there are several."""
    if rows[0][column] is None:
        return ""
    gyms = [by_gym(row[f"{column}_by_gym"]) for row in rows]
    gym_means = ", ".join(f"{gym} {number(fmean(scores[gym] for scores in gyms))}" for gym in gyms[0])
    mean = number(fmean(row[column] for row in rows))
    return f"{mean} ({gym_means})" if len(gyms[0]) > 1 else mean


def by_gym(text: str) -> dict[str, float]:
    """Return the scores of a cell, ``errand=0.41 wish=0.32``."""
    return {gym: float(score) for gym, _, score in (part.partition("=") for part in text.split())}


if __name__ == "__main__":
    warnings.simplefilter("ignore", UserWarning)
    main()
