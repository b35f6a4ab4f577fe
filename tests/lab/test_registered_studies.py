"""Analyses of the registered studies on made-up rows, and the runs of their plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.measure.interval import newcombe
from lab.pages import claims, language_model_trials
from lab.pages import horizon_rules as horizons
from lab.pages.paired import STUDIES
from lab.rows import DATA, add_rows, read_rows
from lab.studies import language_model, registered
from lab.studies import what_collapses as collapses

FAMILIES = ("errand", "wish", "travel", "textcraft", "tau", "searchqa")


def runs(
    family: str, gamma: float, pay: str, collapsed: int, of: int = 16, form: str = "centred"
) -> list[dict[str, Any]]:
    """Rows of a cell with so many collapsed runs."""
    return [
        {
            "family": family, "gamma": gamma, "form": form, "enabling_turn": pay, "seed": 901 + n, "start": 0.3,
            "last": 0.1 if n < collapsed else 0.6, "collapsed": int(n < collapsed),
        }
        for n in range(of)
    ]  # fmt: skip


def contrast(unpaid: int, paid: int, family: str) -> list[dict[str, Any]]:
    return [*runs(family, 0.0, "unpaid", unpaid), *runs(family, 0.0, "paid", paid)]


def test_the_primary_contrast_is_unpaid_less_paid_with_newcombes_limits() -> None:
    rows = [*contrast(9, 0, "wish"), *runs("wish", 0.3, "paid", 16), *runs("wish", 0.0, "paid", 16, form="paper")]
    found = collapses.primary(rows)
    assert found.counts == {"wish": ((9, 16), (0, 16))}
    assert found.by_family == {"wish": newcombe((9, 16), (0, 16))}
    reference = newcombe((9, 16), (0, 16), 0.98)  # 0.562 [0.196, 0.797], computed elsewhere
    assert (reference.estimate, reference.low, reference.high) == pytest.approx((0.562, 0.196, 0.797), abs=1e-3)


def test_a_run_of_two_plans_counts_once_and_runs_of_other_plans_do_not() -> None:
    rows = [{"run": run, "plan": plan} for run, plan in (("a", "old"), ("a", "new"), ("b", "old"), ("c", "other"))]
    assert [row["run"] for row in collapses.runs_of(["new", "old"], rows)] == ["a", "b"]


def test_the_page_shows_the_tables_that_the_data_give() -> None:
    rows = collapses.runs_of(registered.plans(collapses.PLAN), read_rows(collapses.FOLDER / "runs.csv"))
    page = (collapses.FOLDER / "README.md").read_text(encoding="utf-8")
    families = len(registered.read_plan(collapses.PLAN)["families"])
    for table in (collapses.primary_table(collapses.primary(rows), families), collapses.cell_table(rows)):
        assert "\n".join(table) in page
    audits = read_rows(collapses.FOLDER / "audits.csv")
    assert "\n".join(collapses.prediction_table(collapses.predictions(rows, audits))) in page


def test_a_family_whose_shares_fishers_test_does_not_tell_apart_is_undecided() -> None:
    both = [
        row
        for family, paid in (("travel", 4), ("wish", 0))
        for pay, collapsed in (("unpaid", 8), ("paid", paid))
        for row in runs(family, 0.0, pay, collapsed, of=8)
    ]
    travel, wish = collapses.primary_table(collapses.primary(both), 6)[2:4]
    assert travel.endswith("+0.50 [+0.07, +0.78] | 0.0769 | undecided |")
    assert wish.endswith("| 0.000155 | more collapse |")


def test_six_families_in_one_direction_have_p_031_and_five_are_enough() -> None:
    six = collapses.primary([row for family in FAMILIES for row in contrast(8, 2, family)])
    assert (six.above, round(six.p, 3)) == (6, 0.031)
    assert collapses.primary_table(six, 6)[-1].endswith("At least 5 were required: the primary contrast holds.")
    signs = [8, 8, 8, 8, 2, 0]
    four = collapses.primary([row for family, n in zip(FAMILIES, signs, strict=True) for row in contrast(n, 2, family)])
    assert (four.above, four.p) == (4, pytest.approx(0.375))  # 4 to 1, and one family with equal shares
    assert collapses.primary_table(four, 6)[-1].endswith("the primary contrast fails.")


def test_a_study_without_all_families_gives_no_verdict() -> None:
    found = collapses.primary([*contrast(8, 2, "wish"), *runs("errand", 0.0, "paid", 3)])
    assert "5 of 6 families have no runs yet" in collapses.primary_table(found, 6)[-1]


def audits(predictor: dict[tuple[str, float], float]) -> list[dict[str, Any]]:
    return [
        {"family": f, "gamma": g, "form": "centred", "enabling_turn": "unpaid", "audit": x, "push": 0.5, "cosine": -x}
        for (f, g), x in predictor.items()
    ]


def test_a_predictor_that_separates_all_collapses_beats_the_constants() -> None:
    rows = [row for f in FAMILIES[:4] for g, n in ((0.0, 8), (1.0, 0)) for row in runs(f, g, "unpaid", n, 8)]
    found = collapses.predictions(rows, audits({(f, g): g - 0.5 for f in FAMILIES[:4] for g in (0.0, 1.0)}))
    assert found["audit"].brier < 0.02
    assert found["push"].brier == pytest.approx(0.25)  # a constant: half of the others' runs collapse
    assert found[collapses.MAJORITY].brier == pytest.approx(0.25)
    assert found["audit"].spearman == pytest.approx(1.0)
    assert found["cosine"].brier == pytest.approx(
        found["audit"].brier, abs=1e-6
    )  # the sign is learnt from other families
    assert found["push"].spearman != found["push"].spearman
    assert "The audit's Brier score is below push's." in collapses.prediction_table(found)


def test_a_family_is_predicted_from_the_others_alone() -> None:
    # In wish the predictor points the other way, so the curve of the others is wrong there.
    rows = [row for f in FAMILIES[:3] for g, n in ((0.0, 8), (1.0, 0)) for row in runs(f, g, "unpaid", n, 8)]
    predictor = {(f, g): (0.5 - g if f == "wish" else g - 0.5) for f in FAMILIES[:3] for g in (0.0, 1.0)}
    assert collapses.predictions(rows, audits(predictor))["audit"].brier > 0.25


def test_cells_without_a_predictor_or_without_runs_are_left_out() -> None:
    rows = [row for f in FAMILIES[:3] for g, n in ((0.0, 8), (1.0, 0)) for row in runs(f, g, "unpaid", n, 8)]
    given = audits({(f, g): g for f in FAMILIES[:3] for g in (0.0, 1.0)})
    more = [*given, given[0] | {"family": "tau"}, given[0] | {"gamma": 0.3}]
    assert repr(collapses.predictions(rows, more)) == repr(collapses.predictions(rows, given))


def test_both_figures_are_drawn_and_are_the_same_each_time(tmp_path: Path) -> None:
    rows = [row for family in FAMILIES[:2] for row in contrast(8, 2, family)]
    for name in ("one", "two"):
        collapses.draw_differences(collapses.primary(rows), tmp_path / f"{name}-families.svg")
        collapses.draw_cells(rows, tmp_path / f"{name}-cells.svg")
    for figure in ("families", "cells"):
        one, two = ((tmp_path / f"{name}-{figure}.svg").read_bytes() for name in ("one", "two"))
        assert one == two
        assert b"<svg" in one


def test_the_figures_of_the_page_are_drawn_from_its_data(tmp_path: Path) -> None:
    rows = collapses.runs_of(registered.plans(collapses.PLAN), read_rows(collapses.RUNS))
    collapses.draw_differences(collapses.primary(rows), tmp_path / "what-collapses-families.svg")
    collapses.draw_cells(rows, tmp_path / "what-collapses-cells.svg")
    for figure in tmp_path.iterdir():
        assert figure.read_bytes() == (collapses.FOLDER / figure.name).read_bytes()


def scores(**arms: Any) -> dict[str, dict[int, float]]:
    """Scores by arm and seed, from lists that begin at seed 701."""
    return {name.replace("_", "-"): {701 + n: each for n, each in enumerate(values)} for name, values in arms.items()}


FIXED = ("turns-6", "turns-10", "turns-16")


def test_the_loss_is_measured_on_all_seeds_if_both_halves_choose_the_same_horizon() -> None:
    made = scores(turns_6=[0.3] * 8, turns_10=[0.9] * 16, turns_16=[0.5] * 8, either=[0.8, 1.0] * 8)
    loss, chosen = horizons.lost(made, FIXED, "either")[0]
    assert chosen == ("turns-10",)
    assert (loss.estimate, loss.units) == (pytest.approx(0.0), 16)
    assert loss.high == pytest.approx(2.1314 * 0.10328 / 4, abs=1e-4)


def test_horizons_chosen_on_one_half_are_measured_on_the_other() -> None:
    made = scores(turns_6=[0.9] * 4 + [0.1] * 4, turns_10=[0.5] * 16, turns_16=[0.2] * 8, probes=[0.5] * 16)
    loss, chosen = horizons.lost(made, FIXED, "probes")[0]
    assert chosen == ("turns-6", "turns-10")
    # turns-6 is measured on the second half (.1 - .5), turns-10 on the first (.5 - .5)
    assert (loss.estimate, loss.units) == (pytest.approx(-0.2), 8)
    assert horizons.lost(made, FIXED, "either") == []


def test_a_promise_needs_all_cells() -> None:
    assert horizons.promise("either", [0.049] * 30, 30, 0.05) == "`either` holds its promise in all 30 cells."
    assert "does not hold" in horizons.promise("either", [*[0.01] * 29, 0.05], 30, 0.05)
    assert "29 of 30 cells" in horizons.promise("either", [0.01] * 29, 30, 0.05)


def test_the_tables_of_a_whole_study_have_a_line_for_each_cell() -> None:
    plan = registered.read_plan(STUDIES / "horizon_rules.yaml")
    budgets = [f"at_{round(budget * plan['tokens'])}" for budget in plan["budgets"]]
    rows = [
        {"family": family, "reward": reward, "arm": arm, "seed": 701 + n}
        | dict.fromkeys(budgets, 0.51 if arm == "turns-10" else 0.5)
        for family in plan["families"]
        for reward in ("dense", "terminal")
        for block in plan["blocks"].values()
        for arm in block["arms"]
        for n in range(block["seeds"])
    ]
    assert len(rows) == 384 + 144
    lines = horizons.tables(plan, rows)
    cells = [line.split("|")[5:9] for line in lines if ",000 |" in line]
    assert len(cells) == 30
    assert all("(16)" in cell for line in cells for cell in line[:3]), "two rules and the horizon drawn for each group"
    assert all("(8)" in line[3] for line in cells), "the shipped gate has eight seeds"
    assert lines[-2:] == [f"- `{rule}` holds its promise in all 30 cells." for rule in ("either", "probes")]
    over = horizons.over_budgets(plan, rows)
    assert over[1].startswith("| errand | dense | mean | turns-10 | +0.010 [+0.010, +0.010] (16) | +0.010 ")
    assert over[-1].startswith(
        "- `probes` loses less than 0.05 to the best fixed horizon on 3 of 3 families with dense reward; 0 of 3 "
    )


def test_the_loss_over_budgets_is_to_one_horizon_and_a_mean_of_each_seed() -> None:
    plan = {
        "rules": ["either"],
        "baselines": [],
        "fixed": ["turns-6", "turns-10"],
        "budgets": [0.5, 1.0],
        "tokens": 100,
    }
    rows = [
        {"family": "wish", "reward": "dense", "arm": arm, "seed": seed, "at_50": early, "at_100": end + 0.1 * seed}
        for arm, early, end in (("turns-6", 0.6, 0.2), ("turns-10", 0.2, 0.8), ("either", 0.5, 0.4))
        for seed in (1, 2)
    ]
    [(loss, chosen)] = horizons.losses_of(plan, rows, ("wish", "dense"), plan["budgets"])["either"]
    assert (loss.estimate, loss.units, chosen) == (pytest.approx(0.05), 2, ("turns-10",))
    assert horizons.losses_of(plan, rows, ("wish", "dense"), [0.5])["either"][0][1] == ("turns-6",)
    assert horizons.losses_of(plan, rows, ("wish", "terminal"), [0.5]) == {"either": []}


def test_a_row_with_the_same_key_replaces_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "data" / "runs.csv"
    for seed, score in ((2, 0.5), (1, 0.25), (2, 0.75)):
        add_rows(path, ("seed",), {"seed": seed, "score": score})
    assert read_rows(path) == [{"seed": 1, "score": 0.25}, {"seed": 2, "score": 0.75}]


def test_the_page_of_the_language_model_has_the_tables_of_its_data() -> None:
    folder = DATA / "language-model"
    page = (folder / "README.md").read_text(encoding="utf-8")
    trials = (folder / "trials.md").read_text(encoding="utf-8")
    for table in language_model_trials.page():
        assert "\n".join(table) in trials
    for claim in ("elicitation-pay", "unpaid-search"):
        assert "\n".join(claims.turns_table(f"{claim}.language-model")) in page
    assert "\n".join(language_model_trials.unread_answers("wish")) in page
    assert "\n".join(language_model.tables()) in page
    assert "\n".join(language_model.by_tier()) in page
    assert "\n".join(language_model.forgotten()) in page
