"""The studies of turn budgets and of task curricula: their plans, and their statistics on small made tables."""

from __future__ import annotations

import warnings
from typing import Any

import polars as pl
import pytest

from analysis.measure.interval import Interval
from curricula import load
from lab.pages import horizon_rules, paired, task_curricula, turn_budgets
from lab.rows import DATA
from lab.studies.registered import read_plan
from lab.studies.run import at_budgets, budget_row, runs
from userrl_core.records import Task, Trajectory, Turn

PAGES = {"turn_budgets": turn_budgets, "task_curricula": task_curricula}
BUDGETS: dict[str, Any] = {
    "families": {"wish": {}, "errand": {}}, "arms": dict.fromkeys(("shown", "turns-4", "turns-16")), "drawn": ["shown", "turns-16"],
    "turn_budgets": [4, 16, 28], "further": ["turns"], "margin": 0.05,
}  # fmt: skip


def played(arm: str, budget: int, *scores: float, family: str = "wish", cut: float = 0.5) -> list[dict[str, Any]]:
    """Rows of an arm at a budget, from seed 1 on."""
    return [
        {"family": family, "arm": arm, "budget": budget, "seed": 1 + n, "score": score, "thresholded": cut, "turns": budget / 2,
         "conversations": 1000 * (1 + n), "cold_start": n / 10}
        for n, score in enumerate(scores)
    ]  # fmt: skip


WISH = [
    *played("shown", 4, 0.4, 0.5), *played("shown", 16, 0.8, 0.7), *played("shown", 28, 0.5, 0.5),
    *played("turns-4", 4, 0.5, 0.5, 0.9), *played("turns-16", 16, 0.5, 0.5, 0.9),
]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ((-0.049, 0.049), "equivalent"),
        ((0.01, 0.049), "equivalent, higher"),
        ((0.01, 0.05), "higher"),
        ((-0.05, -0.01), "lower"),
        ((-0.05, 0.0), "undecided"),
    ],
)
def test_a_verdict_is_that_of_both_limits(limits: tuple[float, float], said: str) -> None:
    assert paired.verdict(Interval(0.0, *limits, 8, "t"), 0.05) == said
    assert paired.cells(None, 0.05) == "– | 0 | –"


def test_a_difference_is_paired_by_seed_with_students_limits() -> None:
    interval = paired.difference({1: 0.5, 2: 0.7, 3: 0.9}, {2: 0.4, 1: 0.4, 4: 0.0})
    assert interval is not None
    assert (interval.estimate, interval.units) == (pytest.approx(0.2), 2)
    assert interval.high - interval.estimate == pytest.approx(12.7062 * 0.1, abs=1e-5)
    assert paired.difference({1: 0.5}, {2: 0.5}) is None


def test_families_are_taken_together_where_there_are_several() -> None:
    assert paired.together(["wish"]) == [("wish", ["wish"])]
    assert paired.together(["wish", "errand"]) == [
        ("all", ["wish", "errand"]), ("wish", ["wish"]), ("errand", ["errand"]),
    ]  # fmt: skip


def test_a_family_in_work_is_named_with_its_runs_and_is_in_no_table() -> None:
    plan = {"families": {"wish": {}, "errand": {}}, "blocks": {"all": {"arms": ["a", "b"], "seeds": 2}}}
    rows = [{"family": "wish", "reward": "dense", "arm": arm, "seed": seed} for arm in "ab" for seed in (1, 2)]
    assert paired.with_runs(plan, rows) == (["wish"], "Families without runs: errand.")
    sentence = "Families without runs: errand. In work, with their runs so far: wish (3 of 4)."
    assert paired.with_runs(plan, rows[:3]) == ([], sentence)


def test_a_mean_over_budgets_has_the_seeds_that_all_of_them_have() -> None:
    assert paired.mean_of([{1: 0.2, 2: 0.4, 3: 0.6}, {2: 0.8, 3: 0.2}]) == {
        2: pytest.approx(0.6),
        3: pytest.approx(0.4),
    }
    assert paired.mean_of([{1: 0.2}, {}]) == paired.mean_of([]) == {}


def test_the_primary_endpoint_is_the_mean_over_specialists_budgets_by_seed() -> None:
    interval = turn_budgets.below(BUDGETS, turn_budgets.played(WISH, "score"), ["wish"], "shown")
    assert interval is not None
    # Seed 1: (-.1 + .3) / 2, seed 2: (0 + .2) / 2. Budget 28 has no specialist, and seed 3 no run of `shown`.
    assert (interval.estimate, interval.low, interval.high) == pytest.approx((0.1, 0.1, 0.1))
    assert interval.units == 2


def test_families_together_have_the_mean_of_each_seed_over_families() -> None:
    worse = [
        row for arm, score in (("shown", 0.2), ("turns-4", 0.4), ("turns-16", 0.4)) for budget in (4, 16)
        for row in played(arm, budget, score, family="errand")
    ]  # fmt: skip
    scores = turn_budgets.played([*WISH, *worse], "score")
    interval = turn_budgets.below(BUDGETS, scores, ["wish", "errand"], "shown")
    assert interval is not None
    assert (interval.estimate, interval.units) == (pytest.approx((0.1 - 0.2) / 2), 1)


def test_the_tables_of_turn_budgets_are_those_of_a_made_table() -> None:
    families, primary, scores, errors, turns, spent, _ = "\n".join(turn_budgets.tables(BUDGETS, WISH)).split("\n\n")
    rows = ["`shown` | +0.100 [+0.100, +0.100] | 2 | higher", "`turns-4` | – | 0 | –", "`turns-16` | – | 0 | –"]
    assert families == "Families without runs: errand."
    assert primary.splitlines()[2:] == [f"| wish | {row} |" for row in rows]
    assert scores.splitlines() == [
        "| family | score | 4 | 16 | 28 |",
        "| --- | --- | ---: | ---: | ---: |",
        "| wish | `shown` | 0.450 | 0.750 | 0.500 |",
        "| wish | `turns-4` | 0.633 | – | – |",
        "| wish | `turns-16` | – | 0.633 | – |",
        "| wish | `shown` less `turns-16` | – | +0.250 [−0.385, +0.885] | – |",
    ]
    assert errors.splitlines()[2:] == [
        "| wish | `shown` | 0.050 | −0.250 | 0.000 |",
        "| wish | `turns-4` | −0.133 | – | – |",
        "| wish | `turns-16` | – | −0.133 | – |",
    ]
    assert turns.splitlines()[2:] == [
        "| wish | `shown` | 2.000 | 8.000 | 14.000 |",
        "| wish | `turns-16` | – | 8.000 | – |",
        "| wish | `shown` less `turns-16` | – | 0.000 [0.000, 0.000] | – |",
    ]
    assert spent.splitlines()[2:] == [
        "| wish | score of the cold start | 0.050 | 0.100 | 0.100 |",
        "| wish | conversations of RL | 1,500 | 2,000 | 2,000 |",
    ]
    exact = [row | {"thresholded": row["score"]} for row in WISH]
    assert "\n".join(turn_budgets.tables(BUDGETS, exact)).split("\n\n")[3].count("\n") == 1


CURRICULA: dict[str, Any] = {
    "families": {"wish": {}, "errand": {}}, "samplers": ["uniform", "learnability"], "schedules": ["fixed", "either"],
    "budgets": [0.5, 1.0], "tokens": 100, "margin": 0.05,
}  # fmt: skip


def trained(family: str, arm: str, *scores: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        {"family": family, "arm": arm, "seed": 1 + n, "at_50": early, "at_100": end, "conversations": 1000 + n}
        for n, (early, end) in enumerate(scores)
    ]


def test_a_sampler_is_compared_over_families_and_schedules_by_seed() -> None:
    rows = [
        *trained("wish", "uniform-fixed", (0.2, 0.4), (0.2, 0.4)), *trained("wish", "uniform-either", (0.2, 0.6), (0.2, 0.6)),
        *trained("wish", "learnability-fixed", (0.4, 0.6), (0.4, 0.8)),
        *trained("wish", "learnability-either", (0.4, 0.6), (0.4, 0.6)),
    ]  # fmt: skip
    lines = list(task_curricula.tables(CURRICULA, rows))[2:]
    # Seed 1: (.2 + 0) / 2, seed 2: (.4 + 0) / 2; the half width is 12.7062 x .05.
    assert lines[2] == "| wish | `learnability` | +0.150 [−0.485, +0.785] | 2 | undecided |"
    assert lines[6] == "| wish | `learnability` | +0.175 [−0.143, +0.493] | 2 | undecided |"
    assert lines[-4:-2] == [
        "| wish | `uniform` | 0.400 | 0.600 | 1,000 |",
        "| wish | `learnability` | 0.700 | 0.600 | 1,000 |",
    ]
    half = [row for row in rows if (row["arm"], row["seed"]) != ("uniform-either", 2)]
    assert (
        list(task_curricula.tables(CURRICULA, half))[4] == "| wish | `learnability` | +0.100 [–, –] | 1 | undecided |"
    )


def conversation(turns: int, stop_reason: Any, told: int) -> Trajectory:
    """A conversation of wish about two garments: questions, then an answer."""
    choices = ["action"] * (turns - 1) + ["answer"]
    return Trajectory(
        Task("wish", str(turns), "test", {"wished": {"hat": "red", "belt": "blue"}, "best": "oak"}), 0, 28, 0,
        turns=[Turn(n, choice, "", "", "", "", 0.0, info={"told": told}) for n, choice in enumerate(choices, 1)],
        stop_reason=stop_reason, score=float(stop_reason == "success"),
    )  # fmt: skip


def test_a_row_of_a_budget_says_what_thresholding_would_have_said() -> None:
    at_4 = [conversation(3, "success", 2), conversation(4, "success", 1), conversation(4, "horizon", 2)]
    at_28 = [conversation(3, "success", 2), conversation(6, "success", 2), conversation(8, "success", 2)]
    assert budget_row(4, at_4, at_28) == {
        "budget": 4, "tasks": 3, "score": 0.6667, "grounded": 0.3333, "questions": 2.6667, "turns": 3.6667,
        "thresholded": 0.3333, "differs": 0.3333,
    }  # fmt: skip


def test_the_score_at_a_budget_is_the_mean_of_the_fifth_that_ends_there() -> None:
    scores = {0: 0.9, 4: 0.1, 8: 0.2, 12: 0.4, 16: 0.5, 20: 0.8}
    assert at_budgets(scores, [0.2, 0.4, 1.0], 400) == {"at_80": 0.1, "at_160": 0.2, "at_400": 0.8}
    assert at_budgets({2: 0.1, 4: 0.3, 20: 1.0}, [0.2], 400) == {"at_80": 0.2}


@pytest.mark.parametrize("name", PAGES)
def test_seeds_of_a_plan_are_fresh(name: str) -> None:
    plan = read_plan(paired.STUDIES / f"{name}.yaml")
    own = {cell["seed"] for family in plan["families"] for cell, _ in runs(plan, family)}
    for path in DATA.rglob("*.csv"):
        if path != DATA / plan["data"] and "seed" in (seen := pl.read_csv(path, infer_schema_length=None)).columns:
            assert own.isdisjoint(seen["seed"].cast(pl.Int64, strict=False).to_list()), path


@pytest.mark.parametrize("name", PAGES)
def test_every_arm_of_a_plan_is_a_recipe_that_can_be_trained(name: str) -> None:
    plan = read_plan(paired.STUDIES / f"{name}.yaml")
    assert set(plan["arms"]) == {arm for block in plan["blocks"].values() for arm in block["arms"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for family in plan["families"]:
            first = [request for cell, request in runs(plan, family) if cell["seed"] == plan["first_seed"]]
            recipes = [load(run.recipe, profile=run.profile, overrides=run.overrides) for run in first]
            assert [run.until for run in first] == [recipe.planned_stages[-1].name for recipe in recipes]
            assert len({recipe.hash for recipe in recipes}) == len(plan["arms"])
            assert {recipe.training_gyms for recipe in recipes} == {(family,)}


def test_the_seeds_of_a_block_are_run_whole_before_the_next_block() -> None:
    plan = read_plan(paired.STUDIES / "horizon_rules.yaml")
    cells = [(cell["seed"], cell["reward"], cell["arm"]) for cell, _ in runs(plan, "wish")]
    assert len(cells) == 16 * 2 * 4 + 8 * 2 * 3
    assert cells[:5] == [
        (701, "dense", "either"), (701, "dense", "probes"), (701, "dense", "turns-10"), (701, "dense", "drawn"),
        (701, "terminal", "either"),
    ]  # fmt: skip
    assert {cell["seed"] for cell, _ in runs(plan, "wish", "709-710")} == {709, 710}
    assert {cell["seed"] for cell, _ in runs(plan, "wish", "0-0")} == {0}


@pytest.mark.parametrize("name", ["horizon_rules", *PAGES])
def test_a_page_has_the_tables_of_its_data(name: str) -> None:
    plan, rows, folder = paired.read_study(name)
    page = (folder / "README.md").read_text(encoding="utf-8")
    lines = horizon_rules.page(plan, rows) if name == "horizon_rules" else PAGES[name].tables(plan, rows)
    assert page == paired.with_lines(page, name, list(lines))
    complete = name == "horizon_rules" or bool(paired.with_runs(plan, rows)[0])
    assert (folder / "scores.svg").is_file() == complete
