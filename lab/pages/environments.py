"""The picture of data/environments: mean score of the training conversations by step, a panel an environment, a thin line a seed.

python -m lab.pages.environments
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from lab.rows import DATA, read_rows
from userrl.reports import figures

RUNS, SCORES = (DATA / "environments" / name for name in ("runs.csv", "scores.csv"))
PICTURE = SCORES.with_name("training.svg")
Curve = list[tuple[float, float]]


def draw(path: Path = PICTURE) -> None:
    """Draw the picture."""
    by_environment: dict[str, dict[int, Curve]] = {}
    for row in read_rows(SCORES):
        curves = by_environment.setdefault(row["environment"], {})
        curves.setdefault(row["seed"], []).append((row["step"], row["score"]))
    panels = []
    for name, curves in by_environment.items():
        seeds = [sorted(curve) for curve in curves.values()]
        mean = [(steps[0][0], fmean(score for _, score in steps)) for steps in zip(*seeds, strict=True)]
        panels.append(figures.Panel(f"{name}: mean score", [figures.Line(name, mean, single=seeds)]))
    figures.panels(panels, columns=3, height=2.6, path=path)


if __name__ == "__main__":
    draw()
