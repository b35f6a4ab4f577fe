"""The card at the top of a report: the answer first, differences paired by task, alarms with their branch, and the cost."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from analysis.measure.checkpoints import difference, mean_score
from flows.cli.result import show_result
from tests.warehouse.makers import play
from userrl.reports.card import make_card, with_card
from userrl.reports.curves import horizon_note, side_curves
from userrl.reports.run_report import CardRow, Reached, RunReport
from userrl.reports.run_summary import at_a_glance, run_summary
from userrl.reports.sides import find_side, split_by_branch
from userrl.run import progress
from userrl.run.alarms import RULES
from userrl.run.listed import listed_runs, measured_ends, reported_ends
from userrl.run.progress import progress_score, progress_text, shown_score
from userrl.run.run import RunDescription, claim, find
from userrl_core.json_files import write_json
from userrl_core.number_format import with_limits
from userrl_core.records import Phase
from warehouse import TurnLog, open_warehouse

TASKS = 20
PHASES: tuple[Phase, ...] = ("train", "validate")


def fork(
    root: Path, solved: Mapping[str, int], run: str = "f-s0-0123456789", tiers: tuple[str, str] = ("", "")
) -> RunReport:
    """A run with the branches short and longer. solved: tasks that each policy solves, the first ones. tiers: of each half."""
    with TurnLog.open(root, run, run_fields={"recipe": "fork", "seed": 0}) as log:
        for step, stage, horizon in ((1, "rl-1", 6), (2, "rl-2-short", 6), (2, "rl-3-longer", 16)):
            for phase in PHASES:
                played = play(log, [0.5], stage=stage, step=step, phase=phase, score=0.5, end=False)
                played.horizon, played.score, played.stop_reason = horizon, 0.5, "success"
                log.end(played)
        for policy, count in solved.items():
            for task in range(TASKS):
                score = float(task < count)
                place = {"phase": "evaluate", "stage": "evaluate", "step": 2}
                tier = tiers[task >= TASKS // 2]
                play(log, [score], task=f"t{task:02}", tier=tier, policy=policy, score=score, **place)  # type: ignore[arg-type]
        log.event("alarm", stage="rl-2-short", step=2, alarm="kl", value=3.0, bound=2.0, action="warn")
    reached = Reached(step=2, validation=0.5)
    return RunReport(
        run=run,
        recipe="fork",
        profile="laptop",
        seed=0,
        table={policy: {} for policy in solved},
        branches={"short": (reached, reached), "longer": (reached, reached)},
        test_tasks=TASKS,
        horizon=16,
        alarms=("Alarm kl at step 2: the policy is far from its start (KL in nats) (3, bound 2).",),
        seconds={"rl-1": 10.0, "evaluate": 5.0},
        cpu_seconds={"rl-1": 8.0},
        warehouse=str(root),
        folder=str(root),
    )


def carded(root: Path, solved: Mapping[str, int], tiers: tuple[str, str] = ("", "")) -> RunReport:
    report = fork(root, solved, tiers=tiers)
    with open_warehouse(root) as warehouse:
        return with_card(report, warehouse)


def scores(count: int) -> list[list[float]]:
    return [[float(task < count)] for task in range(TASKS)]


def test_the_answer_of_a_fork_is_the_paired_difference_of_its_branches(tmp_path: Path) -> None:
    report = carded(tmp_path, {"SFT": 4, "short": 6, "longer": 18})
    expected = difference(scores(6), scores(18)).interval
    assert report.card is not None
    [between] = report.card.between
    found = between.difference
    gained = with_limits(found, sign=True)
    assert (between.a, between.b, found.units) == ("short", "longer", TASKS)
    assert (found.estimate, found.low, found.high) == (expected.estimate, expected.low, expected.high)
    answer = at_a_glance(report).text().splitlines()[0]
    assert answer == (
        f"**Branch longer beat branch short: longer − short, same 20 held-out tasks: {gained} at the last step. One seed; "
        "userrl reproduce --list has the claims that compare recipes over seeds.**"
    )
    assert run_summary(report).text().splitlines()[2] == answer


def test_the_answer_of_a_fork_names_the_difference_of_the_best_steps_too(tmp_path: Path) -> None:
    report = carded(tmp_path, {"SFT": 4, "short": 9, "short last step": 6, "longer": 18})
    assert report.card is not None
    [between] = report.card.between
    assert between.best is not None
    last, best = (difference(scores(count), scores(18)).interval.estimate for count in (6, 9))
    assert (between.difference.estimate, between.best.estimate) == (last, best)
    in_words = f"at the last step, {with_limits(between.best, sign=True)} at their best steps."
    assert in_words in at_a_glance(report).text()


def test_the_card_says_which_tier_gained_most_and_which_least(tmp_path: Path) -> None:
    report = carded(tmp_path / "two", {"SFT": 8, "short": 6, "longer": 18}, tiers=("easy", "hard"))
    assert report.card is not None
    found = [(each.policy, each.best, each.gained, each.worst, each.lost) for each in report.card.tiers]
    assert [(policy, best, worst) for policy, best, _, worst, _ in found] == [
        ("short", "travel hard", "travel easy"),
        ("longer", "travel hard", "travel easy"),
    ]
    estimates = [(gained.estimate, lost.estimate) for _, _, gained, _, lost in found]
    assert estimates == [(0.0, pytest.approx(-0.2)), (pytest.approx(0.8), pytest.approx(0.2))]
    assert "- longer, last step minus SFT by tier: highest travel hard +0.800 [" in at_a_glance(report).text()
    one_tier = carded(tmp_path / "one", {"SFT": 8, "short": 6, "longer": 18}, tiers=("easy", "easy")).card
    assert one_tier is not None
    assert one_tier.tiers == ()


@pytest.mark.parametrize(
    ("short", "longer", "answer"),
    [
        (18, 6, "Branch short beat branch longer: longer − short"),
        (10, 11, "Branches longer and short do not differ clearly: longer − short"),
    ],
)
def test_the_other_answers_of_a_fork(tmp_path: Path, short: int, longer: int, answer: str) -> None:
    report = carded(tmp_path, {"SFT": 4, "short": short, "longer": longer})
    assert at_a_glance(report).text().startswith(f"**{answer}")


def test_a_group_of_forks_is_drawn_by_branch(tmp_path: Path) -> None:
    fork(tmp_path, {"SFT": 4, "short": 6, "longer": 18})
    with open_warehouse(tmp_path) as warehouse:
        texts = split_by_branch(warehouse, "recipe=fork,seed=*")
        assert texts == [f"recipe=fork,seed=*,policy={branch}" for branch in ("longer", "short")]
        assert {curve.side for text in texts for curve in side_curves(warehouse, find_side(warehouse, text))} == {
            *texts
        }
        assert split_by_branch(warehouse, "recipe=fork,policy=short") == ["recipe=fork,policy=short"]
        assert split_by_branch(warehouse, "f-s0-0123456789") == ["f-s0-0123456789"]


def test_each_policy_has_its_interval_and_its_difference_to_the_cold_start(tmp_path: Path) -> None:
    report = carded(tmp_path, {"SFT": 4, "short": 6, "longer": 18})
    assert report.card is not None
    rows = {row.policy: row for row in report.card.rows}
    assert list(rows) == ["SFT, the cold start", "short, best and last", "longer, best and last"]
    assert [str(row.score) for row in rows.values()] == [str(mean_score(scores(count))) for count in (4, 6, 18)]
    gains = [row.gain and row.gain.estimate for row in rows.values()]
    assert gains == [None, pytest.approx(0.1), pytest.approx(0.7)]
    outcomes = {outcome.branch: outcome.outcome for outcome in report.card.outcomes}
    assert outcomes == {"longer": "improved on the cold start", "short": "no better than the cold start"}


def test_an_alarm_names_its_branch_and_what_to_do_and_is_red_on_a_terminal(tmp_path: Path) -> None:
    report = carded(tmp_path, {"SFT": 4, "short": 6, "longer": 18})
    assert report.card is not None
    [alarm] = report.card.alarms
    assert (alarm.branch, alarm.remedy) == ("short", RULES["kl"].remedy)
    [line] = [line for line in at_a_glance(report).text(colour=True).splitlines() if "Alarm" in line]
    assert line.startswith("\x1b[31m**Alarm kl at step 2:")
    assert f"Branch short. {RULES['kl'].remedy}" in line
    assert line.endswith("**\x1b[0m")
    assert "\x1b" not in at_a_glance(report).text()
    assert all(rule.remedy for rule in RULES.values())


def test_a_stored_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = carded(tmp_path, {"SFT": 4, "short": 6, "longer": 18})
    assert RunReport.model_validate_json(report.model_dump_json()).card == report.card


def test_a_run_that_evaluated_nothing_has_a_card_of_its_cost(tmp_path: Path) -> None:
    report = fork(tmp_path, {}).model_copy(update={"branches": {}, "alarms": ()})
    with open_warehouse(tmp_path) as warehouse:
        card = make_card(report, warehouse)
    assert card.rows == card.between == ()
    text = at_a_glance(report.model_copy(update={"card": card})).text()
    assert (
        "Cost: 15 s, summed over stages, with 8 s of processor time; 15 tokens sampled in training; no served model was called."
        in text
    )


def test_a_run_whose_processor_time_is_not_known_states_its_seconds_alone(tmp_path: Path) -> None:
    report = fork(tmp_path, {}).model_copy(update={"branches": {}, "cpu_seconds": {}, "backend": "verl"})
    with open_warehouse(tmp_path) as warehouse:
        text = run_summary(with_card(report, warehouse), []).text()
    assert "Cost: 15 s, summed over stages; 15 tokens sampled in training" in text
    assert "Recipe fork, profile laptop, seed 0, backend verl." in text
    assert "CPU seconds" not in text


def test_the_first_line_of_make_run_s_result_is_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    description = RunDescription(name="f", recipe="horizon-fork")
    run = claim("f-s0-0123456789", description, fresh=False, flow_run="f")
    report = fork(tmp_path / "warehouse", {"SFT": 4, "short": 6, "longer": 18}, run.id)
    write_json(run.folder / "report.json", report.model_dump(mode="json"))
    show_result(run, "train/horizon-fork", {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("**Branch longer beat branch short:")
    [named] = [line.split()[2] for line in lines if "a failed conversation" in line]
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        [row] = warehouse.rows("SELECT policy, task_id, score FROM trajectories WHERE traj_id = $id", id=int(named))
    assert (row["policy"], row["score"]) == ("short", 0.0)
    assert "t06" <= row["task_id"] <= "t17", "longer solves the task, which short does not"
    monkeypatch.setitem(sys.modules, "nicegui", None)  # what Python sees where it is not installed
    show_result(run, "train/horizon-fork", {})
    fresh = capsys.readouterr().out.splitlines()
    install = "  .venv/bin/pip install -c constraints.txt -e '.[view]'   # once, for the page of the next line"
    page = next(line for line in lines if "userrl view" in line)
    assert install not in lines
    assert fresh[fresh.index(install) + 1] == page
    assert len(lines) < 26  # with at most 14 lines of progress it stays below 40


def test_a_chart_says_where_training_and_validation_use_different_horizons() -> None:
    points = [("train", 6), ("train", 10), ("train", 16), ("validate", 16)]
    assert horizon_note(points) == (
        "Training conversations have at most 6, 10 or 16 turns, validation ones 16: the two curves are not comparable."
    )
    assert horizon_note([("train", 16), ("validate", 16)]) == horizon_note([("train", 6)]) == ""


def test_progress_shows_the_score_and_no_return_of_an_earlier_version() -> None:
    assert progress_score({"score": 0.467, "reward": 0.682}) == 0.467
    assert progress_score({"reward": 0.682, "policy/entropy/mean": 0.4}) is None
    assert progress_score({"reward": 0.787}) == 0.787


def test_a_distillation_shows_conversations_and_no_score_before_all_are_played() -> None:
    begun, played = ({"step": step, "total": 2000, "score": 0.0, "seconds": 1.0} for step in (200, 2000))
    assert progress_text("distill", begun) == "distill 200 of 2,000 played"
    assert progress_text("distill", played) == "distill 2,000 of 2,000 played, score 0.000"
    assert progress_text("evaluate", {**begun, "total": 400}) == "evaluate 200 of 400, score 0.000"
    assert shown_score("distill", begun) is None


def test_silent_work_says_that_it_goes_on_and_lines_of_progress_break_the_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.05)
    silent, said = io.StringIO(), threading.Event()
    line = progress.ProgressLine(silent)
    with line.alive("writing files"):
        while "writing files" not in silent.getvalue():
            said.wait(0.01)
    assert silent.getvalue().startswith("writing files (0 s without news)\n")
    quick = io.StringIO()
    with progress.ProgressLine(quick).alive("writing files"):
        pass
    assert quick.getvalue() == ""


def test_a_list_of_runs_reads_the_endings_of_a_completed_run_from_its_report_and_they_are_those_of_the_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    report = fork(tmp_path / "warehouse", {"SFT": 4, "short": 6, "longer": 18})
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        report = with_card(report, warehouse)
    folder = tmp_path / "runs" / report.run
    write_json(folder / "run.json", {"id": report.run, "created": 1, "recipe": "fork", "seed": 0})
    write_json(folder / "status.json", {"state": "completed"})
    write_json(folder / "report.json", report.model_dump(mode="json"))
    run = find(report.run)

    measured = measured_ends(tmp_path / "warehouse", [run.id])[run.id]
    by_branch = sorted((end.branch, end.word, end.best, end.last) for end in measured)
    reported = [(end.branch, end.word, end.best, end.last) for end in reported_ends([run])[run.id]]
    assert reported == by_branch
    assert reported[0] == ("longer", "improved on the cold start", 0.5, 0.5)
    (tmp_path / "warehouse").rename(tmp_path / "elsewhere")
    [row], problem = listed_runs()
    assert (row.outcome, problem) == ("longer improved, short no better", "")


def test_endings_are_not_read_from_a_report_of_an_earlier_version_or_of_a_run_that_trains_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    report = carded(tmp_path / "warehouse", {"SFT": 4, "short": 6, "longer": 18}).model_dump(mode="json")
    folder = tmp_path / "runs" / report["run"]
    write_json(folder / "run.json", {"id": report["run"], "created": 1, "recipe": "fork", "seed": 0})
    for state, written in (
        ("completed", {**report, "card": None}),
        ("completed", {**report, "branches": {}}),
        ("running", report),
        ("stopped", report),
    ):
        write_json(folder / "status.json", {"state": state})
        write_json(folder / "report.json", written)
        assert reported_ends([find(report["run"])]) == {}
        [row], _ = listed_runs()
        assert row.outcome == "longer improved, short no better"


@pytest.mark.parametrize(
    "score", [{"estimate": 0.5}, {"estimate": "x", "low": 0, "high": 1, "tasks": 4}, {"low": None}]
)
def test_a_damaged_interval_is_a_damaged_report(score: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CardRow.model_validate_json(json.dumps({"policy": "a", "score": score}))
