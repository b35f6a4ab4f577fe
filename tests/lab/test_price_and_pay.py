"""The study of a question's price and the pay for facts: its plan, its tables and its picture."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from analysis.measure.interval import score_interval
from lab.studies.price_and_pay import (
    FIELDS,
    arm,
    curves_of,
    draw,
    ends_of_seeds,
    lines,
    load_plan,
    load_rows,
    pairs,
)
from tests.places import ROOT
from userrl_core.number_format import with_limits


def data(path: Path, grounded: dict[tuple[float, float], float]) -> Path:
    """Four seeds of every arm at two turn budgets; an arm's grounded success goes up by .01 with each seed."""
    plan = load_plan()
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, FIELDS)
        writer.writeheader()
        for price, pay in pairs(plan):
            for seed in range(4):
                success = grounded.get((price, pay), 0.5) + seed / 100
                for budget, share in ((3, 0.5), (28, 1.0)):
                    writer.writerow(
                        {"seed": seed, "price": price, "pay": pay, "budget": budget, "grounded": share * success}
                        | {"lucky": 0.1, "questions": 2 * share, "oracle": share, "oracle_questions": 3 * share}
                    )
    return path


def test_the_plan_has_every_pair_of_a_price_and_a_pay_and_the_designed_size() -> None:
    plan = load_plan()
    recipe = plan.recipe_of(plan.arms["price-0.05-pay-0.25"])
    config = recipe.gym("wish").config
    assert (config["question_price"], config["elicitation"]) == (0.05, 0.25)
    assert (len(plan.arms) * plan.seeds, plan.first_seed) == (96, 1101)
    assert {name for contrast in plan.contrasts for name in contrast} <= plan.arms.keys()


def test_the_tables_and_the_picture_come_from_the_data(tmp_path: Path) -> None:
    plan = load_plan()
    rows = load_rows(data(tmp_path / "data.csv", {(0.05, 0.0): 0.2}))
    few, _, *said = lines(plan, rows)
    assert few == "4 of 8 seeds; no verdict."
    assert said[0].startswith(
        "- Primary contrast: `price-0.05-pay-0.5` − `price-0.05-pay-0`, grounded success: +0.300 ["
    )
    assert "above 0 at 2 and below 0 at 0 of 2 turn budgets" in said[0]
    assert "`price-0.05-pay-0.5` − `price-0-pay-0.5`, grounded success: 0.000" in said[1].replace("+", "")
    table = [line for line in said if line.startswith("| 0.05 | 0 |")]
    assert "0.215 [" in table[0]
    # Area: .5 of the way to 16 questions costs 1 question, the rest 2: (.1075 + 14 x .215) / 16; the oracle's 3.
    assert float(table[0].split("|")[6].split()[0]) == pytest.approx((0.1075 + 14 * 0.215) / 16, abs=5e-4)
    draw(plan, rows, tmp_path / "picture.svg")
    assert "price 0.05" in (tmp_path / "picture.svg").read_text()


def test_arms_are_named_by_price_and_pay() -> None:
    assert [arm(*pair) for pair in pairs(load_plan())][:2] == ["price-0-pay-0", "price-0-pay-0.25"]


def test_the_page_has_the_grounded_success_and_the_picture_of_the_data(tmp_path: Path) -> None:
    plan, rows = load_plan(), load_rows(ROOT / "data" / "users" / "price_and_pay.csv")
    draw(plan, rows, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_bytes() == (ROOT / "data" / "users" / "price-and-pay.svg").read_bytes()
    curves = curves_of(rows)
    page = (ROOT / "data" / "users" / "README.md").read_text(encoding="utf-8")
    for price in plan.prices:
        cells = [
            with_limits(score_interval(np.array(ends_of_seeds(curves, (price, pay))["grounded"])), 2)
            for pay in plan.pays
        ]
        assert f"| {price:g} | {' | '.join(cells)} |".replace("0.", ".") in page
