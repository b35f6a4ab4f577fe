"""Price of a question x pay for facts, on wish: grounded answers against the questions that they cost.

    python -m lab.studies.price_and_pay CSV [--picture SVG]    # the tables in Markdown, and the picture, from the data

The plan is price_and_pay.yaml. It was registered like a claim, before its first run. Each arm and seed was evaluated once at a
long horizon with the users of its training. The data are one row per arm, seed and turn budget. The half that ran the study is
finished (data/finished-studies.md).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt, model_validator
from scipy import stats

from analysis.measure.grounded import AREA_TO, area_under, band
from analysis.measure.interval import MIN_SEEDS, Interval, score_interval, t_interval, welch
from analysis.measure.recipes import holm
from curricula.claims.claim import Claim
from curricula.schedule import Turns
from curricula.validation import validated
from curricula.yaml_files import read
from userrl.reports import figures
from userrl_core.number_format import p_value, with_limits

PLAN = Path(__file__).with_suffix(".yaml")
FIELDS = ("seed", "price", "pay", "budget", "grounded", "lucky", "questions", "oracle", "oracle_questions")
LEVEL = 0.98

Row = Mapping[str, float]
Pair = tuple[float, float]
"""Price and pay of an arm."""


class PriceAndPay(Claim):
    """The plan: arms are all pairs of a price and a pay. The primary contrast is about grounded success."""

    prices: tuple[NonNegativeFloat, ...]
    pays: tuple[NonNegativeFloat, ...]
    further: tuple[tuple[str, str], ...] = ()
    seeds: PositiveInt = 8
    evaluation_tasks: PositiveInt = 400
    evaluation_horizon: Turns = 28

    @model_validator(mode="before")
    @classmethod
    def _arms_of_pairs(cls, values: Any) -> Any:
        if "arms" in values:
            return values
        config = "gyms.wish.config"
        arms = {
            arm(price, pay): {"overrides": {f"{config}.question_price": price, f"{config}.elicitation": pay}}
            for price in values["prices"]
            for pay in values["pays"]
        }
        return {**values, "arms": arms}

    @property
    def contrasts(self) -> tuple[tuple[str, str], ...]:
        """Return the planned contrasts, the primary one first."""
        return ((self.contrast.more, self.contrast.than), *self.further)


def arm(price: float, pay: float) -> str:
    """Return the name of an arm."""
    return f"price-{price:g}-pay-{pay:g}"


def load_plan(path: Path = PLAN) -> PriceAndPay:
    """Return the plan of the study. Raises ConfigError."""
    return validated(PriceAndPay, {"name": path.stem, **read(path)}, f"study '{path.stem}'")


def main() -> None:
    """Print the tables and draw the picture."""
    parser = argparse.ArgumentParser(description="Price of a question x pay for facts.")
    parser.add_argument("data", type=Path, metavar="CSV")
    parser.add_argument("--picture", type=Path, metavar="SVG")
    arguments = parser.parse_args()
    plan, rows = load_plan(), load_rows(arguments.data)
    print("\n".join(lines(plan, rows)))
    if arguments.picture:
        draw(plan, rows, arguments.picture)


def pairs(plan: PriceAndPay) -> Iterator[Pair]:
    """Yield price and pay of every arm."""
    for price in plan.prices:
        for pay in plan.pays:
            yield price, pay


def load_rows(path: Path) -> list[Row]:
    """Return the rows of a data file."""
    with path.open(encoding="utf-8") as stream:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(stream)]


Curves = Mapping[tuple[Pair, int], Sequence[Row]]


def curves_of(rows: Sequence[Row]) -> Curves:
    """Return the rows of each arm and seed, by turn budget."""
    curves: dict[tuple[Pair, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["budget"]):
        curves.setdefault(((row["price"], row["pay"]), int(row["seed"])), []).append(row)
    return curves


def lines(plan: PriceAndPay, rows: Sequence[Row]) -> Iterator[str]:
    """Yield the contrasts and the table of the arms, in Markdown."""
    curves = curves_of(rows)
    by_arm = {pair: ends_of_seeds(curves, pair) for pair in pairs(plan)}
    pair_by_name = {arm(*pair): pair for pair in by_arm}
    fewest = min(len(ends["grounded"]) for ends in by_arm.values())
    if fewest < plan.seeds:
        yield f"{fewest} of {plan.seeds} seeds; no verdict."
        yield ""
    if fewest >= MIN_SEEDS:
        tested = [_contrast(curves, by_arm, pair_by_name[more], pair_by_name[than]) for more, than in plan.contrasts]
        for index, ((more, than), (difference, _, band_sentence)) in enumerate(
            zip(plan.contrasts, tested, strict=True)
        ):
            adjusted = holm([p for _, p, _ in tested])[index]
            yield (
                f"- {'Primary contrast: ' if index == 0 else ''}`{more}` − `{than}`, grounded success: "
                f"{with_limits(difference, sign=True)} (98 %, Welch over seeds; Holm {p_value(adjusted)}). {band_sentence}"
            )
        yield ""
    yield "| price | pay | grounded | lucky | questions | area | below the oracle |"
    yield "| ---: | ---: | --- | --- | --- | --- | --- |"
    for (price, pay), ends in by_arm.items():
        grounded, lucky = (with_limits(score_interval(np.array(ends[name]))) for name in ("grounded", "lucky"))
        questions = with_limits(t_interval(np.array(ends["questions"])), 1)
        area = with_limits(score_interval(np.array(ends["area"])))
        below = with_limits(t_interval(np.array(ends["between"])))
        yield f"| {price:g} | {pay:g} | {grounded} | {lucky} | {questions} | {area} | {below} |"


def draw(plan: PriceAndPay, rows: Sequence[Row], path: Path) -> None:
    """Draw the arms by grounded success and questions, and the curves of the contrasts over the turn budgets."""
    curves = curves_of(rows)
    by_pay = [
        figures.Line(
            f"pay {pay:g}",
            [_middle(ends_of_seeds(curves, (price, pay))) for price in reversed(plan.prices)],
            markers=True,
            names=[f"price {price:g}" for price in reversed(plan.prices)] if pay == max(plan.pays) else (),
        )
        for pay in plan.pays
    ]
    some = next(iter(curves.values()))
    oracle = figures.Line("oracle", [(row["oracle_questions"], row["oracle"]) for row in some], markers=True)
    pair_by_name = {arm(*pair): pair for pair in pairs(plan)}
    shown_arms = dict.fromkeys(name for contrast in plan.contrasts for name in contrast)
    over = [figures.Line(name, _mean_curve(curves, pair_by_name[name]), markers=True) for name in shown_arms]
    goal = figures.Line("oracle", oracle.points[-1:], markers=True)
    figures.panels(
        [
            figures.Panel("grounded success by questions asked, 28 turns", [goal, *by_pay], x="questions"),
            figures.Panel("the same at 3 to 28 turns", [oracle, *over], x="questions"),
        ],
        height=4.0,
        path=path,
    )


def ends_of_seeds(curves: Curves, pair: Pair) -> dict[str, list[float]]:
    """Return the values of each seed at the largest budget, with the areas."""
    ends: dict[str, list[float]] = {name: [] for name in ("grounded", "lucky", "questions", "area", "between")}
    for (at, _), curve in curves.items():
        if at == pair:
            area = area_under([row["questions"] for row in curve], [row["grounded"] for row in curve], AREA_TO)
            oracle = area_under([row["oracle_questions"] for row in curve], [row["oracle"] for row in curve], AREA_TO)
            for name in ("grounded", "lucky", "questions"):
                ends[name].append(curve[-1][name])
            ends["area"].append(area)
            ends["between"].append(oracle - area)
    return ends


def _middle(ends: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    return float(np.mean(ends["questions"])), float(np.mean(ends["grounded"]))


def _mean_curve(curves: Curves, pair: Pair) -> list[tuple[float, float]]:
    chosen = np.array(
        [[(row["questions"], row["grounded"]) for row in curve] for (at, _), curve in curves.items() if at == pair]
    )
    return [(float(x), float(y)) for x, y in chosen.mean(axis=0)]


def _contrast(
    curves: Curves, by_arm: Mapping[Pair, Mapping[str, Sequence[float]]], more: Pair, than: Pair
) -> tuple[Interval, float, str]:
    """Return the difference in grounded success, its p, and whether one arm dominates at all turn budgets."""
    a, b = np.array(by_arm[more]["grounded"]), np.array(by_arm[than]["grounded"])
    p = float(stats.ttest_ind(a, b, equal_var=False).pvalue) if np.ptp(a) + np.ptp(b) > 0 else float(a[0] == b[0])
    both = [seed for at, seed in curves if at == more and (than, seed) in curves]
    differences = np.array(
        [
            [x["grounded"] - y["grounded"] for x, y in zip(curves[more, seed], curves[than, seed], strict=True)]
            for seed in both
        ]
    )
    low_B, high_B = band(differences, LEVEL)
    above, below = int((low_B > 0).sum()), int((high_B < 0).sum())
    band_sentence = (
        f"The band of the difference lies above 0 at {above} and below 0 at {below} of {len(low_B)} turn budgets."
    )
    return welch(a, b, LEVEL), p, band_sentence


if __name__ == "__main__":
    main()
