"""The outcome of a run is said in the same words wherever runs are shown; one without a report says how far it came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import userrl
from analysis.measure.outcome import in_a_word, read_outcome
from flows.cli import main as cli
from tests.makers import raises
from tests.warehouse.makers import play
from userrl.reports.sides import find_sides
from userrl.run.ending import endings
from userrl_core.json_files import write_json
from warehouse import TurnLog, open_warehouse

TASKS = 64


def validated(log: TurnLog, step: int, mean: float, stage: str = "rl-1", **changes: str) -> None:
    """64 tasks of which that share is solved, the first ones."""
    place = {"phase": "validate", "stage": stage, **changes}
    for task in range(TASKS):
        score = float(task < round(mean * TASKS))
        play(log, [score], task=f"t{task:02}", step=step, score=score, **place)  # type: ignore[arg-type]


def words(root: Path, run: str, means: Sequence[float]) -> str:
    with TurnLog.open(root, run, run_fields={"recipe": "r", "seed": 0}) as log:
        for number, mean in enumerate(means):
            validated(log, 10 * number, mean)
    with open_warehouse(root) as warehouse:
        return in_a_word(endings(warehouse, run).get(run, ()))


def test_one_high_validation_after_which_all_are_low_is_a_collapse_though_the_alarm_stays_silent(
    tmp_path: Path,
) -> None:
    assert words(tmp_path, "a", (0.25, 1.0, 0.25, 0.25, 0.25)) == "collapsed"
    with open_warehouse(tmp_path) as warehouse:
        (ending,) = endings(warehouse)["a"]
    assert ending.sentence() == (
        "RL collapsed: the last step, 40, scores 0.250 on validation tasks, the best checkpoint, step 10, 1.000: "
        "−0.750 ± 0.055 over 64 tasks."
    )


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ((0.5, 1.0, 0.906), "worse than its best"),  # .094 lower
        ((1.0, 0.89), "worse than its best"),  # .109 lower, less than three standard errors of .039
        ((1.0, 0.8), "collapsed"),
        ((0.2, 0.5, 0.9), "improved on the cold start"),
        ((0.5, 0.53, 0.5), "no better than the cold start"),
        ((0.5,), ""),
        ((), ""),
    ],
)
def test_every_outcome_has_its_words_and_one_validation_says_nothing(
    tmp_path: Path, means: tuple[float, ...], word: str
) -> None:
    assert words(tmp_path, "a", means) == word


def test_held_out_tasks_decide_where_both_ends_were_evaluated_on_them(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "a", run_fields={"recipe": "r", "seed": 0}) as log:
        for step, mean in ((10, 1.0), (20, 0.5)):
            validated(log, step, mean)
        for policy, mean in (("RL", 0.6), ("RL last step", 0.58)):
            validated(log, 20, mean, "evaluate", phase="evaluate", policy=policy)
    with open_warehouse(tmp_path) as warehouse:
        (ending,) = endings(warehouse)["a"]
    assert (ending.word, ending.best, ending.last) == ("did not collapse", 1.0, 0.5)  # no cold start was played
    assert ending.held_out == (38 / 64, 37 / 64)


def test_a_branch_that_collapsed_is_named_with_its_scores(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "a", run_fields={"recipe": "r", "seed": 0}) as log:
        validated(log, 10, 0.75)
        for step, short, longer in ((20, 0.5, 0.875), (30, 0.25, 1.0)):
            validated(log, step, short, "rl-2-short")
            validated(log, step, longer, "rl-2-longer")
    with open_warehouse(tmp_path) as warehouse:
        assert in_a_word(endings(warehouse)["a"]) == "short collapsed 0.75 → 0.25, longer did not collapse"


def test_a_run_whose_validation_chose_step_0_gained_nothing(tmp_path: Path) -> None:
    assert words(tmp_path, "a", (0.5, 0.45, 0.4)) == "worse than its best"
    with open_warehouse(tmp_path) as warehouse:
        (ending,) = endings(warehouse)["a"]
    assert ending.sentence().startswith(
        "RL chose step 0: nothing was gained over the start. The last step, 20, scores 0.406 on"
    )


def test_stored_words_of_an_earlier_version_are_still_read() -> None:
    assert (read_outcome("held"), read_outcome("collapsed"), read_outcome("")) == (
        "did not collapse",
        "collapsed",
        None,
    )


def test_a_gain_is_judged_on_held_out_tasks_paired_with_the_cold_start(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "a", run_fields={"recipe": "r", "seed": 0}) as log:
        for step, mean in ((0, 1.0), (20, 1.0)):
            validated(log, step, mean)
        for policy, mean in (("SFT", 0.5), ("RL", 0.75), ("RL last step", 0.25)):
            validated(log, 20, mean, "evaluate", phase="evaluate", policy=policy)
    with open_warehouse(tmp_path) as warehouse:
        (ending,) = endings(warehouse)["a"]
    assert (ending.start, ending.gain and ending.gain.estimate) == (("SFT", 0.5), -0.25)
    assert ending.word == "collapsed"


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that fell and was stopped before its evaluation, and one of the same home that was evaluated."""
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    run = "naive-sum-s3-0123456789"
    words(tmp_path / "warehouse", run, (0.25, 1.0, 0.25))
    folder = tmp_path / "runs" / run
    about = {"id": run, "created": 1, "name": "naive-sum", "recipe": "naive-sum", "profile": "laptop", "seed": 3}
    write_json(folder / "run.json", about)
    write_json(folder / "status.json", {"state": "stopped"})
    checkpoint = folder / "stages" / "rl-1" / "checkpoints" / "step-000010"
    checkpoint.mkdir(parents=True)
    best = {"path": str(checkpoint), "id": "b", "step": 10, "score": 1.0}
    result = {"checkpoint": str(checkpoint), "step": 20, "best": best}
    write_json(folder / "stages" / "rl-1" / "result.json", {"key": "k", "at": 1.0, "value": result})
    sentence = "Alarm kl at step 20: the policy has moved far."
    (folder / "alarms.jsonl").write_text(json.dumps({"alarm": "kl", "step": 20, "sentence": sentence}) + "\n")
    with TurnLog.open(tmp_path / "warehouse", "other", run_fields={"recipe": "r", "seed": 0}) as log:
        validated(log, 0, 1.0, "evaluate", phase="evaluate", policy="RL")
    return run


def test_the_list_of_runs_says_collapsed(stopped: str) -> None:
    done = CliRunner().invoke(cli.app, ["runs", "list"])
    assert "collapsed" in next(line for line in done.stdout.splitlines() if line.startswith(stopped))
    [row] = json.loads(CliRunner().invoke(cli.app, ["runs", "list", "--json"]).stdout)
    assert row["ending"] == "collapsed"
    assert userrl.runs().select("run", "ending").rows() == [(stopped, "collapsed")]


def test_a_stopped_run_reports_how_far_it_came_and_what_to_do(stopped: str) -> None:
    done = CliRunner().invoke(cli.app, ["report", stopped])
    assert done.exit_code == 1
    for said in (
        "This run is stopped and has no report yet; finished: rl-1.",
        "**Alarm kl at step 20: the policy has moved far.**",
        "**RL collapsed: the last step, 20, scores 0.250",
        "0.250 → 0.250 steps 0 to 20",
        "prefect deployment run train/naive-sum -p seed=3 -p profile=laptop",
        "userrl evaluate ",
    ):
        assert said in done.stdout


def test_a_run_without_an_evaluation_is_not_sent_round_in_a_circle(stopped: str, tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        with raises("compare.no_evaluation", "000010"):
            find_sides(warehouse, [stopped, "other"])
        with raises("run.no_such_run", "'recipe=naive'"):
            find_sides(warehouse, ["recipe=naive", "other"])
    with TurnLog.open(tmp_path / "warehouse", "evaluate-it", run_fields={"recipe": "r", "seed": 0}) as log:
        trajectory = play(log, [1.0], phase="evaluate", stage="evaluate", end=False)
        trajectory.context = trajectory.context.__class__("evaluate", 0, "evaluate", stopped, f"{stopped}@abc")
        trajectory.score, trajectory.stop_reason = 1.0, "success"
        log.end(trajectory)
    with (
        open_warehouse(tmp_path / "warehouse") as warehouse,
        raises("compare.no_evaluation"),
    ):
        find_sides(warehouse, [stopped, "other"])
