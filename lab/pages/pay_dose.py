"""Table and picture of the dose-response in data/what-collapses/README.md.

python -m lab.pages.pay_dose [HOME ...]      # adds the runs of homes first
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from analysis.drawing import COLORS, drawing, in_both
from analysis.measure.interval import share_interval
from lab.pages.claims import Row, append, result, rows
from lab.pages.data_tables import with_lines
from lab.rows import DATA
from userrl_core.number_format import NULL

PLANS = Path(__file__).parents[1] / "studies" / "pay_dose"
FOLDER = DATA / "what-collapses" / "dose"
PAGE = DATA / "what-collapses" / "README.md"
PICTURE = DATA / "what-collapses" / "pay-dose.svg"
DOSES: Mapping[str, str] = {"dose-0": "0", "dose-01": ".01", "dose-03": ".03", "dose-10": ".1", "dose-30": ".3"}
"""The pay of the enabling turn, as a share of the total, by arm."""
ENABLING: Mapping[str, str] = {"errand": "action", "wish": "search", "searchqa": "search"}
"""The kind of the enabling turn, by family. An answer takes its place where it is lost."""
NEAR, FAR = "own reward (gamma 0)", "reward to go (gamma .8)"


def main() -> None:
    """Add the runs of the homes that are named, and write table and picture."""
    parser = argparse.ArgumentParser(description="The dose-response of pay for the enabling turn.")
    parser.add_argument("homes", nargs="*", type=Path, metavar="HOME")
    for home in parser.parse_args().homes:
        print(f"{home}: {append(home / 'warehouse', FOLDER, [plan.stem for plan in PLANS.glob('*.yaml')])} runs")
    PAGE.write_text(page(PAGE.read_text()))
    if runs := rows(FOLDER / "runs.csv"):
        PICTURE.write_text(draw(runs))


def page(text: str) -> str:
    """Return the page with its table rewritten."""
    lines = table(rows(FOLDER / "runs.csv"), rows(FOLDER / "audits.csv"))
    return with_lines(text, "pay_dose", lines)


def cells(runs: Sequence[Row]) -> dict[tuple[str, str], dict[str, list[Row]]]:
    """Return the runs by family and credit, then by arm. Runs of an exploratory arm or budget do not count."""
    by_cell: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in runs:
        family, _, far = row["claim"].removeprefix("pay-dose-").partition("-")
        if not row["exploratory"]:
            by_cell.setdefault((family, FAR if far else NEAR), {}).setdefault(row["arm"], []).append(row)
    return by_cell


def table(runs: Sequence[Row], audits: Sequence[Row]) -> list[str]:
    """Return a row for each family and credit: predicted flips, collapsed runs by dose with the mean test score, and the flip."""
    lines = [
        f"| family | credit | flip by sign, by order | {' | '.join(DOSES.values())} | flip |",
        "| --- | --- | --- |" + " --- |" * len(DOSES) + " --- |",
    ]
    by_cell = cells(runs)
    for family in dict.fromkeys(audit["family"] for audit in audits):
        expected = {
            (audit["arm"], audit["kind"]): float(audit["expected"]) for audit in audits if audit["family"] == family
        }
        for credit in (NEAR, FAR):
            arms = by_cell.get((family, credit), {})
            predicted = (
                f"{predicted_flip(expected, family, None)}, {predicted_flip(expected, family, 'answer')}"
                if credit == NEAR
                else NULL
            )
            by_dose = " | ".join(cell(arms.get(arm, [])) for arm in DOSES)
            lines.append(f"| {family} | {credit} | {predicted} | {by_dose} | {flip(arms)} |")
    return lines


def predicted_flip(expected: Mapping[tuple[str, str], float], family: str, other: str | None) -> str:
    """Return the smallest dose at which the enabling kind's expected advantage is not below 0, or not below another kind's.

    expected: the advantages by arm and kind.
    """
    reached = (
        dose
        for arm, dose in DOSES.items()
        if expected[arm, ENABLING[family]] >= (0.0 if other is None else expected[arm, other])
    )
    return next(reached, "above .3")


def cell(runs: Sequence[Row]) -> str:
    """Return collapsed runs, and the mean test score with its standard error over seeds."""
    if not runs:
        return ""
    scores = [float(row["score"]) for row in runs if row["score"]]
    error = f" ± {stdev(scores) / math.sqrt(len(scores)):.2f}" if len(scores) > 1 else ""
    return f"{collapsed(runs)} of {len(runs)}" + (f", {fmean(scores):.2f}{error}" if scores else "")


def collapsed(runs: Sequence[Row]) -> int:
    """Return the number of collapsed runs; a run that crashed twice counts as one."""
    return sum(bool(result(row).value("collapsed")) for row in runs)


def flip(arms: Mapping[str, Sequence[Row]]) -> str:
    """Return the smallest dose from which on fewer than half of the runs collapse; a dash if fewer do so unpaid."""
    if not all(arms.get(arm) for arm in DOSES):
        return ""
    often = [2 * collapsed(arms.get(arm, [])) >= len(arms.get(arm, [])) for arm in DOSES]
    if not often[0]:
        return NULL
    last = max(position for position, is_often in enumerate(often) if is_often)
    return [*DOSES.values(), "above .3"][last + 1]


def draw(runs: Sequence[Row]) -> str:
    """Return the picture as SVG text: the share of collapsed runs by dose with exact 95 % limits, a panel for each credit."""
    from matplotlib.figure import Figure

    by_cell = cells(runs)
    families = list(dict.fromkeys(family for family, _ in by_cell))
    credits_shown = [credit for credit in (NEAR, FAR) if any(kind == credit for _, kind in by_cell)]
    with drawing():
        figure = Figure(figsize=(4.6 * max(1, len(credits_shown)), 2.9), layout="constrained")
        grid = figure.subplots(1, max(1, len(credits_shown)), squeeze=False, sharey=True)
        for axes, credit in zip(grid.flat, credits_shown, strict=True):
            for number, family in enumerate(families):
                arms = by_cell.get((family, credit), {})
                shares = [
                    (position, share_interval(collapsed(arms[arm]), len(arms[arm])))
                    for position, arm in enumerate(DOSES)
                    if arms.get(arm)
                ]
                offset = 0.08 * (number - (len(families) - 1) / 2)
                x, y = [position + offset for position, _ in shares], [share.estimate for _, share in shares]
                limits = [
                    [share.estimate - share.low for _, share in shares],
                    [share.high - share.estimate for _, share in shares],
                ]
                axes.errorbar(x, y, yerr=limits, fmt="o-", ms=4, elinewidth=0.8, color=COLORS[number], label=family)
            axes.set_xticks(range(len(DOSES)), list(DOSES.values()))
            axes.set_title(credit)
        grid[0][0].set_ylabel("share of collapsed runs")
        grid[0][0].legend()
        figure.supxlabel("pay of the enabling turn, share of the total")
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return in_both(text.getvalue())


if __name__ == "__main__":
    main()
