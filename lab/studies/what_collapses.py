"""The factorial of what_collapses.yaml: credit of later rewards x form x pay of the enabling turn, by family.

    python -m lab.studies.what_collapses [--figures FOLDER]      # the tables, from data/what-collapses, and two SVG files

The half that ran the study is finished (data/finished-studies.md). Families are the units of the sign test.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import scipy

from analysis.drawing import COLORS, QUIET, drawing, in_both
from analysis.measure.interval import Interval, newcombe
from analysis.measure.verdict import ALPHA, compare_shares
from lab.rows import DATA, read_rows
from lab.studies.registered import plans, read_plan
from userrl.reports import figures
from userrl_core.number_format import p_value

PLAN = Path(__file__).with_suffix(".yaml")
FOLDER = DATA / "what-collapses"
RUNS, AUDITS = FOLDER / "runs.csv", FOLDER / "audits.csv"
CELL = ("family", "gamma", "form", "enabling_turn")
PREDICTORS = ("audit", "push", "cosine")
MAJORITY = "share of the other families"

Rows = Sequence[Mapping[str, Any]]


class Primary(NamedTuple):
    """by_family: unpaid less paid, share of collapsed runs. p: of the two-sided sign test. above: families above 0."""

    by_family: dict[str, Interval]
    counts: dict[str, tuple[tuple[int, int], tuple[int, int]]]
    above: int
    p: float


class Prediction(NamedTuple):
    """Error and rank correlation of a predictor; the correlation of a constant is nan."""

    brier: float
    spearman: float


def main() -> None:
    """Print the tables, and draw the figures."""
    parser = argparse.ArgumentParser(description="Factorial: what collapses.")
    parser.add_argument("--figures", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    rows = runs_of(plans(PLAN), read_rows(RUNS))
    print("\n".join(tables(read_plan(PLAN), rows, read_rows(AUDITS))))
    if arguments.figures:
        draw_differences(primary(rows), arguments.figures / "what-collapses-families.svg")
        draw_cells(rows, arguments.figures / "what-collapses-cells.svg")


def tables(plan: Mapping[str, Any], rows: Rows, audits: Rows) -> list[str]:
    """Return the primary contrast, the cells, and the predictions of the cells that were audited."""
    lines = [*primary_table(primary(rows), len(plan["families"])), "", *cell_table(rows)]
    return [*lines, "", *prediction_table(predictions(rows, audits))] if audits else lines


def runs_of(hashes: Sequence[str], rows: Rows) -> list[Mapping[str, Any]]:
    """Return the runs of a plan and of those that it amends. A run that is part of both counts once."""
    return list({row["run"]: row for row in rows if row["plan"] in hashes}.values())


def primary(rows: Rows) -> Primary:
    """Return the primary contrast: gamma 0, form centred, the enabling turn unpaid less paid, by family.

    A family counts once both cells have runs. The sign test leaves out families with equal shares.
    """
    counts = {}
    for family in dict.fromkeys(row["family"] for row in rows):
        cells = [
            [
                row["collapsed"]
                for row in rows
                if (row["family"], row["gamma"], row["form"], row["enabling_turn"]) == (family, 0, "centred", pay)
            ]
            for pay in ("unpaid", "paid")
        ]
        if all(cells):
            unpaid, paid = ((sum(cell), len(cell)) for cell in cells)
            counts[family] = (unpaid, paid)
    by_family = {family: newcombe(*pair) for family, pair in counts.items()}
    above, below = (sum(sign * interval.estimate > 0 for interval in by_family.values()) for sign in (1, -1))
    p = float(scipy.stats.binomtest(above, above + below).pvalue) if above + below else 1.0
    return Primary(by_family, counts, above, p)


def primary_table(contrast: Primary, planned: int) -> list[str]:
    """Return one row per family, the sign test, and whether the study failed.

    A family's verdict is that of the claims' test for shares, Fisher's exact test at .02.
    """
    lines = [
        "| family | unpaid | paid | difference [95 %] | Fisher's p | verdict |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for family, interval in contrast.by_family.items():
        (unpaid, of_unpaid), (paid, of_paid) = contrast.counts[family]
        limits = f"{interval.estimate:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"
        shares = compare_shares(*contrast.counts[family], ALPHA, more_is_collapse=True)
        verdict = "more collapse" if shares.word == "reproduced" else shares.word
        lines.append(
            f"| {family} | {unpaid} of {of_unpaid} | {paid} of {of_paid} | {limits} | {p_value(shares.p)} | {verdict} |"
        )
    families = len(contrast.by_family)
    sentence = f"{contrast.above} of {families} families have a difference above 0 (sign test: p {contrast.p:.3f})."
    if families < planned:
        return [*lines, "", f"{sentence} {planned - families} of {planned} families have no runs yet."]
    outcome = "holds" if contrast.above >= planned - 1 else "fails"
    return [*lines, "", f"{sentence} At least {planned - 1} were required: the primary contrast {outcome}."]


def cell_table(rows: Rows) -> list[str]:
    """Return one row per family, form and pay.

    The cell of a gamma has the collapsed runs, and the mean change from the cold start to the end. Its error is over seeds.
    """
    gammas = sorted({row["gamma"] for row in rows})
    lines = [
        f"| family | form | enabling turn | {' | '.join(f'gamma {gamma:g}' for gamma in gammas)} |",
        f"| --- | --- | --- |{' --- |' * len(gammas)}",
    ]
    cells = by_cell(rows)
    for family, form, pay in dict.fromkeys((family, form, pay) for family, _, form, pay in cells):
        gamma_cells = [_shown(cells.get((family, gamma, form, pay), [])) for gamma in gammas]
        lines.append(f"| {family} | {form} | {pay} | {' | '.join(gamma_cells)} |")
    return lines


def _shown(rows: Rows) -> str:
    if not rows:
        return ""
    changes = [row["last"] - row["start"] for row in rows]
    error = f" ± {stdev(changes) / math.sqrt(len(changes)):.2f}" if len(changes) > 1 else ""
    return f"{sum(row['collapsed'] for row in rows)} of {len(rows)}, {fmean(changes):+.2f}{error}"


def by_cell(rows: Rows) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Return the rows of each cell."""
    cells: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        cells.setdefault(tuple(row[name] for name in CELL), []).append(row)
    return cells


def predictions(rows: Rows, audits: Rows) -> dict[str, Prediction]:
    """Return Brier score and Spearman's correlation of every predictor, with each family left out in turn.

    Only cells count that have runs and all predictors. Each run has the same weight in the Brier score, each cell in
    the correlation, which is between the predicted chance and the share of collapsed runs.
    """
    cells = {cell: [row["collapsed"] for row in cell_rows] for cell, cell_rows in by_cell(rows).items()}
    predicted = [
        row
        for row in audits
        if tuple(row[name] for name in CELL) in cells and all(row[name] is not None for name in PREDICTORS)
    ]
    outcomes = [cells[tuple(row[name] for name in CELL)] for row in predicted]
    families = [row["family"] for row in predicted]
    scores = {}
    for name in (*PREDICTORS, MAJORITY):
        values = np.array([0.0 if name == MAJORITY else float(row[name]) for row in predicted])
        chances = np.empty(len(predicted))
        for family in set(families):
            held_out = np.array([collapsed == family for collapsed in families])
            others = [outcome for outcome, out in zip(outcomes, held_out, strict=True) if not out]
            chances[held_out] = logistic(values[~held_out], others)(values[held_out])
        errors = [
            (chance - collapsed) ** 2 for chance, cell in zip(chances, outcomes, strict=True) for collapsed in cell
        ]
        shares = [fmean(cell) for cell in outcomes]
        constant = name == MAJORITY or len(set(shares)) < 2 or len(set(chances)) < 2
        rank = math.nan if constant else float(scipy.stats.spearmanr(chances, shares).statistic)
        scores[name] = Prediction(float(np.mean(errors)), rank)
    return scores


def logistic(values_C: np.ndarray, outcomes: Sequence[Sequence[int]]) -> Callable[[np.ndarray], np.ndarray]:
    """Return a logistic curve in one variable, fitted to the collapses of C cells.

    The variable is standardised. A penalty of half the squared slope keeps the slope finite where a value separates all
    collapses. Without spread of the variable the curve is the share of collapses.
    """
    centre, spread = (float(values_C.mean()), float(values_C.std())) if values_C.size else (0.0, 0.0)
    spread = spread or 1.0
    count_C, total_C = (np.array([f(cell) for cell in outcomes], dtype=float) for f in (sum, len))

    def loss(parameters: np.ndarray) -> float:
        logits_C = parameters[0] + parameters[1] * (values_C - centre) / spread
        return float((total_C * np.logaddexp(0.0, logits_C) - count_C * logits_C).sum() + parameters[1] ** 2 / 2)

    base, slope = scipy.optimize.minimize(loss, np.zeros(2)).x
    return lambda values: scipy.special.expit(base + slope * (values - centre) / spread)


def prediction_table(scores: Mapping[str, Prediction]) -> list[str]:
    """Return one row per predictor, and the comparison that was registered."""
    lines = ["| predictor | Brier score | Spearman |", "| --- | ---: | ---: |"]
    for name, prediction in scores.items():
        rank = "" if math.isnan(prediction.spearman) else f"{prediction.spearman:+.2f}"
        lines.append(f"| {name} | {prediction.brier:.3f} | {rank} |")
    comparison = (
        "below push's" if scores["audit"].brier < scores["push"].brier else "not below push's, so the audit fails"
    )
    return [*lines, "", f"The audit's Brier score is {comparison}."]


def draw_differences(contrast: Primary, path: Path) -> None:
    """Draw the primary contrast: a dot with limits per family."""
    rows = [(name, interval.estimate, interval.low, interval.high) for name, interval in contrast.by_family.items()]
    x = "share of collapsed runs, enabling turn unpaid less paid [95 %] (gamma 0, form centred)"
    path.write_text(figures.intervals(rows, x=x, zero=True) + "\n", encoding="utf-8")


def draw_cells(rows: Rows, path: Path) -> None:
    """Draw the change of every run against gamma: a panel per family and form, a colour per pay."""
    from matplotlib.figure import Figure

    families = list(dict.fromkeys(row["family"] for row in rows))
    forms = list(dict.fromkeys(row["form"] for row in rows))
    gammas = sorted({row["gamma"] for row in rows})
    with drawing():
        figure = Figure(figsize=(1.6 * len(families) + 0.8, 2.0 * len(forms) + 0.6), layout="constrained")
        panels = figure.subplots(len(forms), len(families), sharex=True, sharey=True, squeeze=False)
        for (line, form), (column, family) in ((a, b) for a in enumerate(forms) for b in enumerate(families)):
            axes = panels[line][column]
            axes.axhline(0, color=QUIET, linewidth=0.8, zorder=0.5)
            for number, (pay, shift) in enumerate((("paid", -0.15), ("unpaid", 0.15))):
                for mark, collapsed in (("o", 0), ("x", 1)):
                    marked_rows = [
                        row
                        for row in rows
                        if (row["family"], row["form"], row["enabling_turn"], row["collapsed"])
                        == (family, form, pay, collapsed)
                    ]
                    positions = [gammas.index(row["gamma"]) + shift for row in marked_rows]
                    changes = [row["last"] - row["start"] for row in marked_rows]
                    axes.plot(positions, changes, mark, color=COLORS[number])
                if not line and not column:  # the names, in colour, where a legend would be
                    axes.annotate(
                        f"enabling turn {pay}", (0.03, 0.13 - 0.1 * number), xycoords="axes fraction",
                        color=COLORS[number], fontsize=7.5, fontweight="bold",
                    )  # fmt: skip
            axes.set_xticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
            axes.set_title(f"{family}, {form}", fontsize=8.5)
        figure.supxlabel("gamma of the credit", fontsize=9)
        figure.supylabel("score at the end less cold start (x: collapsed)", fontsize=9)
        text_file = io.StringIO()
        figure.savefig(text_file, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(in_both(text_file.getvalue()), encoding="utf-8")


if __name__ == "__main__":
    main()
