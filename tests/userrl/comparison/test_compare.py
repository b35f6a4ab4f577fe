"""Two questions that are never mixed: checkpoints over their tasks, recipes over their seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis.measure.checkpoints import difference
from analysis.measure.comparison import ALL
from analysis.measure.recipes import contrast
from tests.analysis.measure.test_measure import AIRLINE
from tests.makers import raises
from tests.warehouse.makers import play
from userrl.comparison.document import comparison_document, comparison_sentences
from userrl.comparison.report import ComparisonReport, comparison_report
from userrl.reports.sides import find_side, find_sides
from warehouse import TurnLog, open_warehouse


def evaluated(root: Path, run: str, policies: Mapping[str, Sequence[Sequence[float | None]]], **fields: object) -> None:
    """A run that evaluated policies; per task the scores of its attempts."""
    with TurnLog.open(root, run, run_fields={"recipe": "r", "recipe_hash": "h", "seed": 0, **fields}) as log:
        for policy, scores in policies.items():
            for task, attempts in enumerate(scores):
                for attempt, score in enumerate(attempts):
                    play(
                        log,
                        [score],
                        task=f"t{task:03}",
                        split="test",
                        stage="evaluate",
                        phase="evaluate",
                        policy=policy,
                        attempt=attempt,
                        score=score,
                    )


def reported(root: Path, *sides: str) -> ComparisonReport:
    with open_warehouse(root / "warehouse") as warehouse:
        return comparison_report(warehouse, find_sides(warehouse, sides)[0])


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents on the airline tasks, four attempts each, that differ between tasks as much as chance has it."""
    home = tmp_path_factory.mktemp("agents")
    other = np.random.default_rng(0).permuted(np.array(AIRLINE, dtype=float), axis=0).tolist()
    evaluated(
        home / "warehouse", "one", {"gpt-4o": [list(map(float, row)) for row in AIRLINE]}, recipe="a", recipe_hash="a"
    )
    evaluated(home / "warehouse", "two", {"gpt-5": other}, recipe="b", recipe_hash="b")
    return home


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recipes over eight seeds; five seeds of the second collapse after their best checkpoint."""
    home, rng = tmp_path_factory.mktemp("recipes"), np.random.default_rng(0)
    for seed in range(8):
        for recipe, level in (("steady", 0.8), ("fickle", 0.7)):
            best = (rng.random((20, 1)) < level).astype(float).tolist()
            last = best if recipe == "steady" or seed > 4 else [[0.0]] * 20
            policies = {"SFT": [[0.0]] * 20, "RL": best, "RL last step": last}
            evaluated(home / "warehouse", f"{recipe}-s{seed}", policies, recipe=recipe, recipe_hash=recipe, seed=seed)
    return home


def test_checkpoints_are_paired_over_tasks_and_say_nothing_about_recipes(agents: Path) -> None:
    report = reported(agents, "one", "two")
    assert report.comparison.question == "checkpoints"
    paired = next(each for each in report.comparison.paired if each.which == "best")
    other = np.random.default_rng(0).permuted(np.array(AIRLINE, dtype=float), axis=0).tolist()
    expected = difference(AIRLINE, other)
    assert paired.interval == expected.interval
    assert (paired.p, paired.interval.units, paired.left_out) == (expected.p, 50, 0)
    assert any(
        "no number of attempts at these tasks would show a difference of 0.02" in s
        for s in comparison_sentences(report)
    )
    assert any(s.startswith("Each recipe has one run") for s in comparison_sentences(report))


def test_attempts_at_one_task_are_said_to_be_as_alike_as_they_are(agents: Path) -> None:
    (airline, _) = reported(agents, "one", "two").comparison.agreement
    assert airline.consistency.flips == pytest.approx(0.293333, abs=1e-6)
    assert airline.consistency.icc == pytest.approx(0.404584, abs=1e-6)


def test_recipes_are_paired_over_seeds(recipes: Path) -> None:
    report = reported(recipes, "recipe=steady,seed=*", "recipe=fickle seed=0-7")
    assert report.comparison.question == "recipes"
    with open_warehouse(recipes / "warehouse") as warehouse:
        text = "SELECT seed, score FROM seed_scores(of_recipe := $recipe) WHERE policy = 'RL last step'"
        scores = [dict(warehouse.sql(text, recipe=recipe).fetchall()) for recipe in ("steady", "fickle")]
    paired = next(each for each in report.comparison.paired if each.which == "last")
    assert paired.interval == contrast(*scores).interval
    assert paired.interval.units == 8
    assert not any("One run each" in sentence for sentence in comparison_sentences(report))


def test_collapsed_seeds_come_first(recipes: Path) -> None:
    report = reported(recipes, "recipe=steady,seed=*", "recipe=fickle,seed=*")
    steady, fickle = report.comparison.collapses
    assert (len(steady.seeds), sorted(fickle.seeds)) == (0, [0, 1, 2, 3, 4])
    assert (fickle.share.low, fickle.share.high) == pytest.approx((0.2449, 0.9148), abs=1e-4)
    assert fickle.p == pytest.approx(0.025641, abs=1e-6)
    text = comparison_document(report).text()
    assert text.index("## Collapsed seeds") < text.index("5 of 8 seeds did not hold") < text.index("## Held-out scores")


def test_tasks_that_only_one_side_played_count_in_no_comparison(tmp_path: Path) -> None:
    for seed in range(2):
        both, more = [[1.0], [0.0]], [[1.0], [1.0], [0.0], [0.0], [0.0], [0.0]]
        evaluated(tmp_path / "warehouse", f"few-s{seed}", {"RL": both}, recipe="few", recipe_hash="few", seed=seed)
        evaluated(tmp_path / "warehouse", f"more-s{seed}", {"RL": more}, recipe="more", recipe_hash="more", seed=seed)
    report = reported(tmp_path, "recipe=few,seed=*", "recipe=more,seed=*")
    overall = [each for each in report.comparison.paired if (each.row, each.which) == (ALL, "best")]
    assert [each.interval.estimate for each in overall] == [0.5]  # not 2 of 6 less 1 of 2
    assert [
        score.interval.estimate for score in report.comparison.scores if (score.row, score.which) == (ALL, "best")
    ] == [
        0.5,
        1.0,
    ]
    assert "'all tasks' covers the tasks that every side played" in comparison_sentences(report)[0]
    runs = reported(tmp_path, "few-s0", "more-s0")
    assert {each.left_out for each in runs.comparison.paired if each.row == ALL} == {4}
    assert comparison_sentences(runs)[0].endswith("Left out: tasks of travel (more-s0).")


def test_a_seed_is_paired_over_the_tasks_that_both_of_its_runs_have(tmp_path: Path) -> None:
    whole, part = [[1.0], [1.0], [0.0], [0.0]], [[1.0], [1.0]]
    for recipe, by_seed in (("a", [whole, whole]), ("b", [whole, part])):
        for seed, scores in enumerate(by_seed):
            fields = {"recipe": recipe, "recipe_hash": recipe, "seed": seed}
            evaluated(tmp_path / "warehouse", f"{recipe}-s{seed}", {"RL": scores}, **fields)
    paired = reported(tmp_path, "recipe=a,seed=*", "recipe=b,seed=*").comparison.paired[0]
    assert paired.interval.values == (0.0, 0.0)  # not 1 less .5 in seed 1


@pytest.mark.parametrize(
    ("starts", "is_finished"),
    [
        ([], True),  # an import has no events of stages
        (["started"], False),  # killed
        (["started failed"], False),
        (["started", "started finished"], True),
        (["started finished", "started failed"], True),  # rejected conversations could not be played again
        (["started finished", "started rewind"], False),  # other weights are evaluated
        (["started finished", "started rewind finished"], True),
    ],
)
def test_runs_whose_evaluation_has_not_finished_are_left_out(
    tmp_path: Path, starts: list[str], is_finished: bool
) -> None:
    for seed in range(3):
        evaluated(tmp_path / "warehouse", f"r-s{seed}", {"RL": [[1.0], [0.0]]}, seed=seed)
    for start in starts:
        with TurnLog.open(tmp_path / "warehouse", "r-s2") as log:
            for event in start.split():
                if event == "rewind":
                    log.event(event, stage="evaluate")
                    play(log, [1.0], task="t000", split="test", stage="evaluate", phase="evaluate", policy="RL")
                else:
                    log.stage("evaluate", event)
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        side, alone = find_side(warehouse, "recipe=r,seed=*"), find_side(warehouse, "r-s2")
    assert [run.seed for run in side.runs] == ([0, 1, 2] if is_finished else [0, 1])
    sentence = "recipe=r,seed=*: left out, because their held-out evaluation has not finished: r-s2."
    assert side.left_out == (() if is_finished else (sentence,))
    assert any("of r-s2 has not finished" in note for note in alone.left_out) != is_finished


def test_the_best_checkpoint_does_not_stand_for_a_last_step_that_was_not_evaluated(tmp_path: Path) -> None:
    root, best = tmp_path / "warehouse", [[1.0]] * 20
    for seed, last_validation in enumerate((1, 2, 2)):  # the best checkpoint is that of step 1
        fallen = {"RL last step": [[0.0]] * 20} if seed == 2 else {}
        evaluated(root, f"r-s{seed}", {"RL": best, **fallen}, seed=seed)
        with TurnLog.open(root, f"r-s{seed}") as log:
            play(log, [1.0], phase="validate", step=last_validation)
    with open_warehouse(root) as warehouse:
        side = find_side(warehouse, "recipe=r,seed=*")
        report = comparison_report(warehouse, [side])
    assert [run.last for run in side.runs] == ["RL", "RL last step", "RL last step"]
    assert side.left_out == (
        "The last step was not evaluated, so it counts in no mean and no share of collapses: r-s1.",
    )
    (collapses,) = report.comparison.collapses
    assert (collapses.share.units, list(collapses.seeds)) == (2, [2])
    last = next(score for score in report.comparison.scores if score.which == "last")
    assert last.interval.values == (1.0, 0.0)


def test_a_run_beside_a_recipe_is_not_paired(recipes: Path) -> None:
    report = reported(recipes, "steady-s0", "recipe=fickle,seed=*")
    assert (report.comparison.question, report.comparison.paired) == ("none", ())
    assert "nothing is paired" in comparison_sentences(report)[0]


def test_several_sides_are_held_against_the_first_with_adjusted_p(recipes: Path) -> None:
    report = reported(recipes, "steady-s0", "steady-s1", "fickle-s0:SFT")
    overall = [each for each in report.comparison.paired if (each.which, each.row) == ("best", ALL)]
    assert [(each.a, each.b) for each in overall] == [("steady-s0", "steady-s1"), ("steady-s0", "fickle-s0:SFT")]
    alone = reported(recipes, "steady-s0", "fickle-s0:SFT").comparison.paired[0]
    assert overall[1].p == pytest.approx(2 * alone.p)


def test_published_rows_stand_apart(recipes: Path) -> None:
    with open_warehouse(recipes / "warehouse") as warehouse:
        sides, published = find_sides(warehouse, ["recipe=steady,seed=*", "published:gpt-4o"])
        report = comparison_report(warehouse, sides)
    assert report.comparison.paired == ()
    text = comparison_document(report, published).text()
    assert "## Published: gpt-4o" in text
    assert "nothing is subtracted" in text


def test_sql_pairs_the_same_tasks(recipes: Path) -> None:
    paired = next(
        each for each in reported(recipes, "fickle-s0:SFT", "fickle-s0:RL").comparison.paired if each.which == "best"
    )
    with open_warehouse(recipes / "warehouse") as warehouse:
        text = "SELECT avg(difference), count(*) FROM paired_tasks(run := 'fickle-s0', policy_a := 'SFT', policy_b := 'RL')"
        assert warehouse.sql(text).fetchall() == [(pytest.approx(paired.interval.estimate), 20)]


def test_runs_of_different_recipes_are_no_group(agents: Path) -> None:
    with open_warehouse(agents / "warehouse") as warehouse:
        with raises("compare.bad_sides"):
            find_sides(warehouse, ["recipe=*", "one"])
        with raises("compare.bad_sides", "'recip=a'", "did you mean 'recipe'"):
            find_sides(warehouse, ["recip=a", "one"])
        with raises("compare.bad_sides"):
            find_sides(warehouse, ["one"])


def test_greedy_conversations_of_remax_count_in_what_training_took(tmp_path: Path) -> None:
    for run in ("a", "b"):
        with TurnLog.open(
            tmp_path / "warehouse", run, run_fields={"recipe": run, "recipe_hash": run, "seed": 0}
        ) as log:
            play(log, [1.0], calls=1)
            play(log, [1.0], phase="evaluate", stage="evaluate", split="test", policy="RL", calls=1)
            if run == "b":
                play(log, [1.0], phase="baseline", calls=1)
    costs = reported(tmp_path, "a", "b").costs
    assert [(cost.trajectories, cost.tokens_sampled, cost.tokens_read) for cost in costs] == [(1, 5, 10), (2, 10, 20)]
    assert [cost.dollars for cost in costs] == [{"user": 0.001}, {"user": 0.002}], "of the same conversations"


def test_a_group_counts_what_trained_and_neither_evaluations_nor_arms_of_claims(tmp_path: Path) -> None:
    root, scores = tmp_path / "warehouse", [[1.0], [0.0]]
    evaluated(root, "r-s0", {"SFT": scores, "RL": scores})
    evaluated(root, "evaluate-step-000004", {"step-000004": scores}, recipe_hash="of the evaluation")
    evaluated(root, "arm", {"RL": scores}, recipe_hash="of the arm", seed=8)
    evaluated(root, "shared-arm", {"RL": scores}, seed=9)
    evaluated(root, "other", {"RL": scores}, recipe="other", recipe_hash="other")
    with TurnLog.open(root, "claim-c", run_fields={"name": "claim-c"}) as log:
        for seed, run in ((8, "arm"), (9, "shared-arm")):
            log.event("claim_arm", claim="c", hash="h", arm="a", seed=seed, run=run, state="ended", exploratory="")
    with open_warehouse(root) as warehouse:
        side = find_sides(warehouse, ["recipe=r,seed=*", "other"])[0][0]
        assert [member.run_id for member in side.runs] == ["r-s0", "shared-arm"]
        assert side.left_out == (
            "recipe=r,seed=*: left out, because they are evaluations of one checkpoint or arms of claims: "
            "arm, evaluate-step-000004.",
        )
        side = find_sides(warehouse, ["run_id=evaluate-*", "other"])[0][0]
        assert [member.run_id for member in side.runs] == ["evaluate-step-000004"]


@pytest.mark.usefixtures("prepared")
def test_the_command_prints_json_for_programs_and_writes_a_page(recipes: Path) -> None:
    command = [sys.executable, "-m", "flows.cli.main", "compare", "recipe=steady,seed=*", "recipe=fickle,seed=*"]
    environment = {**os.environ, "USERRL_HOME": str(recipes)}
    page = recipes / "page.html"
    done = subprocess.run(
        [*command, "--json", "--html", str(page)], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["collapsed"][1]["seeds"].keys() == {"0", "1", "2", "3", "4"}
    assert "5 of 8 seeds did not hold" in page.read_text()
