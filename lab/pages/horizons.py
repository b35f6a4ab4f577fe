"""The picture of the README: held-out score by step of both branches of `train/horizon-fork`, over ten seeds.

    python -m lab.pages.horizons                                           # draws data/readme/horizons.svg, prints the table
    python -m lab.pages.horizons HOME --commit COMMIT --machine MACHINE    # reads the runs of a home first

scores.csv  one row a seed, branch and validation: step, number of tasks, mean score
runs.csv    one row a seed: run, commit, machine, CPU-seconds of training, first steps of stages, test scores
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from analysis.drawing import COLORS, QUIET, RULE, drawing, in_both, name_lines
from analysis.measure.interval import score_interval, seed_difference_interval
from warehouse import Warehouse, open_warehouse

FOLDER = Path(__file__).parents[2] / "data" / "readme"
BRANCHES = ("short", "longer")
STAGES = ("6 turns", "10 turns", "16 turns")

SCORES = """
SELECT r.seed, CASE WHEN t.stage LIKE '%-short' THEN 'short' WHEN t.stage LIKE '%-longer' THEN 'longer' ELSE 'both' END
       AS branch, t.step, count(*) AS tasks, avg(t.score) AS score
FROM trajectories t JOIN runs r USING (run_id)
WHERE r.recipe = 'horizon-fork' AND t.phase = 'validate' AND t.admitted GROUP BY ALL ORDER BY ALL
"""
RUNS = """
WITH trained AS (SELECT run_id, min(step) FILTER (stage LIKE 'rl-3-%') AS longer_at_10,
                        min(step) FILTER (stage LIKE 'rl-4-%') AS longer_at_16
                 FROM trajectories WHERE phase = 'train' GROUP BY run_id),
     cpu AS (SELECT run_id, sum(value) AS seconds FROM metrics WHERE name = 'seconds/cpu/sum' GROUP BY run_id),
     test AS (SELECT run_id, policy, avg(score) AS score, avg(score) FILTER (tier = 'depth-3') AS depth_3
              FROM trajectories WHERE phase = 'evaluate' AND admitted GROUP BY ALL)
SELECT r.seed, r.run_id AS run, round(cpu.seconds) AS cpu_seconds, longer_at_10, longer_at_16,
       s.score AS short, l.score AS longer, s.depth_3 AS short_depth_3, l.depth_3 AS longer_depth_3
FROM runs r JOIN trained USING (run_id) JOIN cpu USING (run_id)
JOIN test s ON s.run_id = r.run_id AND s.policy = 'short' JOIN test l ON l.run_id = r.run_id AND l.policy = 'longer'
WHERE r.recipe = 'horizon-fork' ORDER BY r.seed
"""
"""Test scores are of each branch's best checkpoint on validation, on 400 tasks at 16 turns."""


def main() -> None:
    """Read the home, if one is given, and draw the picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path, nargs="?")
    parser.add_argument("--commit", default="")
    parser.add_argument("--machine", default="")
    arguments = parser.parse_args()
    if arguments.home is not None:
        with open_warehouse(arguments.home / "warehouse") as warehouse:
            read(warehouse, commit=arguments.commit, machine=arguments.machine)
    FOLDER.joinpath("horizons.svg").write_text(draw(rows_of("scores"), rows_of("runs")), encoding="utf-8")
    print(sentence(rows_of("runs")))


def read(warehouse: Warehouse, *, commit: str, machine: str) -> None:
    """Write the data of the picture from the runs of a home."""
    runs = [{**row, "commit": commit, "machine": machine} for row in warehouse.rows(RUNS)]
    seeds = {row["seed"] for row in runs}
    _write("runs", runs)
    _write("scores", [row for row in warehouse.rows(SCORES) if row["seed"] in seeds])


def curve(rows: Iterable[Mapping[str, str]], branch: str) -> list[tuple[int, float, float, float]]:
    """Return step, mean over seeds, and 95 % limits (Student's t) at the steps that every seed validated."""
    by_seed: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["branch"] == branch:
            by_seed.setdefault(row["seed"], {})[int(row["step"])] = float(row["score"])
    steps = sorted(set.intersection(*(set(scores) for scores in by_seed.values())))
    limits = {step: score_interval(np.array([scores[step] for scores in by_seed.values()])) for step in steps}
    return [(step, limit.estimate, limit.low, limit.high) for step, limit in limits.items()]


def draw(scores: list[dict[str, str]], runs: list[dict[str, str]]) -> str:
    """Return the picture as SVG text."""
    from matplotlib.figure import Figure

    shared = curve(scores, "both")
    curves = {"": shared, **{branch: [shared[-1], *curve(scores, branch)] for branch in BRANCHES}}
    starts = [0.0, *(fmean(float(run[f"longer_at_{turns}"]) for run in runs) for turns in (10, 16))]
    with drawing():
        figure = Figure(figsize=(7.2, 3.3), layout="constrained")
        axes = figure.add_subplot()
        ends = []
        for branch, color in zip(curves, (QUIET, COLORS[1], COLORS[0]), strict=True):
            steps, values, low, high = zip(*curves[branch], strict=True)
            axes.fill_between(steps, low, high, color=color, alpha=0.18, lw=0)
            axes.plot(steps, values, color=color, marker="o", clip_on=False)
            ends += [(branch, values[-1], color)] if branch else []
        for number, (start, turns) in enumerate(zip(starts, STAGES, strict=True)):
            if number:
                axes.axvline(start, color=RULE, lw=0.9, zorder=0.5)
            text = f"longer: at most {turns}" if number else f"both: at most {turns}"
            axes.annotate(
                text, (start, 1.0), xycoords=("data", "axes fraction"), xytext=(4, -3), textcoords="offset points",
                va="top", color=QUIET, fontsize=8,
            )  # fmt: skip
        axes.set_ylim(0.3, 1.0)
        axes.set_xlim(0, curves["short"][-1][0])
        axes.set(xlabel="training step (each of 16 tasks)", ylabel="mean score on held-out tasks")
        name_lines(axes, ends)
        text_file = io.StringIO()
        figure.savefig(text_file, format="svg", metadata={"Date": None, "Creator": None})
    return in_both(text_file.getvalue())


def sentence(runs: list[dict[str, str]]) -> str:
    """Return the difference of the branches' test scores, and of their scores at depth 3, with 95 % limits over seeds."""
    parts = []
    for name, key in (("all 400 test tasks", ""), ("errands of depth 3", "_depth_3")):
        limit = seed_difference_interval(
            np.array([float(run[f"longer{key}"]) - float(run[f"short{key}"]) for run in runs])
        )
        parts.append(f"{name}: longer less short {limit.estimate:.3f} [{limit.low:.3f}, {limit.high:.3f}]")
    seconds = fmean(float(run["cpu_seconds"]) for run in runs)
    return f"{len(runs)} seeds, {seconds:.0f} CPU-seconds of training each\n" + "\n".join(parts)


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a data file."""
    with FOLDER.joinpath(f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write(name: str, rows: list[dict[str, Any]]) -> None:
    with FOLDER.joinpath(f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
