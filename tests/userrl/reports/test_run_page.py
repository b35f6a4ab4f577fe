"""A run's page: what it reached and how sure that is, how it trained, how conversations ended, what it cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.measure.checkpoints import mean_score
from tests.warehouse.makers import play
from userrl.reports.run_document import run_document
from userrl.reports.run_report import Reached, RunReport
from warehouse import TurnLog, open_warehouse

HOSTILE = "<img src=http://evil.test/x onerror=alert(1)>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page as text and as HTML, of a run that rose and collapsed."""
    return page(tmp_path_factory.mktemp("run"), {})


def page(root: Path, further: dict[str, float]) -> tuple[str, str]:
    """The page of the run in a new warehouse. further: metrics of every step beside its own."""
    with TurnLog.open(root, "r1", run_fields={"recipe": "mine", "shaping": "equalized", "score": "r2g"}) as log:
        for step in range(1, 7):
            stage = "rl-1" if step < 4 else "rl-2"
            for attempt in range(4):
                play(log, [0.5, step / 10], stage=stage, step=step, attempt=attempt, score=step / 10, calls=1)
            level = step / 10 if step < 5 else 0.2
            play(log, [level], stage=stage, step=step, phase="validate", score=level)
            own = {"policy/entropy/mean": 1 / step, "rollout/waits/mean": 0.5}
            log.metrics(own | further, stage=stage, step=step)
        play(log, [1.0] * 20, stage="distill", step=0, phase="distill", calls=1)
        place = {"stage": "evaluate", "phase": "evaluate", "split": "test"}
        for policy, solved in (("SFT", 8), ("RL", 20), ("RL last step", 10)):
            for task in range(20):
                score = float(task < solved)
                play(log, [score], task=f"t{task}", policy=policy, score=score, **place)  # type: ignore[arg-type]
        rejected = play(log, [None], task="t20", policy="RL", score=None, end=False, **place)  # type: ignore[arg-type]
        rejected.admitted, rejected.reject_reason, rejected.stop_reason = False, HOSTILE, "error"
        log.end(rejected)
    report = RunReport(
        run="r1",
        recipe="mine",
        profile="laptop",
        seed=0,
        table={"SFT": {}, "RL": {}, "RL last step": {}},
        horizon=8,
        test_tasks=20,
        best=Reached(step=4, validation=0.4, score=1.0, stderr=0.0),
        last=Reached(step=6, validation=0.2, score=0.5, stderr=0.1),
        alarms=("Alarm entropy at step 6: x.",),
        seconds={"sft": 5.0, "rl-1": 10.0, "rl-2": 20.0},
        cpu_seconds={"sft": 4.0, "rl-1": 9.0, "rl-2": 21.0},
        warehouse=str(root),
        folder=str(root),
    )
    with open_warehouse(root) as warehouse:
        document = run_document(report, warehouse)
    return document.text(), document.html()


def test_a_page_begins_with_what_went_wrong(run: tuple[str, str]) -> None:
    text, _ = run
    collapse = "**RL collapsed: the last step, 6, scores 0.500 on held-out tasks, the best checkpoint, step"
    assert text.index(collapse) < text.index("**Alarm entropy") < text.index("## Learning curves")


def test_every_score_has_its_interval_and_best_stands_beside_last(run: tuple[str, str]) -> None:
    text, _ = run
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert ["gym", "SFT", "RL", "RL last step"] in rows
    limits = [str(mean_score([[float(task < solved)] for task in range(20)])) for solved in (8, 20, 10)]
    assert ["all tasks", *limits] in rows


def test_stages_and_horizons_are_marked_in_the_curves(run: tuple[str, str]) -> None:
    _, html = run
    assert "rl-1: 8 turns" in html
    assert "rl-2: 8 turns" in html


def test_what_a_task_curriculum_drew_stands_beside_its_pass_rates(tmp_path: Path, run: tuple[str, str]) -> None:
    with TurnLog.open(tmp_path, "r1", run_fields={"recipe": "mine"}) as log:
        for step, (easy, hard) in enumerate([(3, 1), (2, 2), (0, 4)], 1):
            for tier, count, solved in (("depth-1", easy, True), ("depth-3", hard, False)):
                for task in range(count):
                    stop = "success" if solved else "horizon"
                    play(
                        log,
                        [float(solved)],
                        gym="errand",
                        tier=tier,
                        task=f"{tier} {task}",
                        step=step,
                        stop_reason=stop,
                    )
            log.metrics(
                {"sampler/errand.depth-1/pass_rate": 0.9, "sampler/errand.depth-3/pass_rate": 0.1 * step},
                stage="rl-1",
                step=step,
            )
    report = RunReport(
        run="r1",
        recipe="mine",
        profile=None,
        seed=0,
        table={},
        horizon=8,
        test_tasks=0,
        warehouse=str(tmp_path),
        folder=str(tmp_path),
    )
    with open_warehouse(tmp_path) as warehouse:
        document = run_document(report, warehouse)
    lines = document.text().partition("## Task curriculum")[2].splitlines()
    told = {
        line.split("→")[0].split()[-1] + " → " + line.split("→")[1].strip(): line.split()[0]
        for line in lines
        if "→" in line
    }
    assert told == {
        "0.750 → 0.000 errand depth-1": "share", "0.250 → 1.000 errand depth-3": "share",
        "1.000 → 1.000 errand depth-1": "pass", "0.000 → 0.000 errand depth-3": "pass",
        "0.900 → 0.900 errand depth-1": "estimated", "0.100 → 0.300 errand depth-3": "estimated",
    }  # fmt: skip
    assert "share of the step" in document.html()
    assert "Task curriculum" not in run[0], "a run without estimates"


def test_entropy_is_that_of_all_replies_and_not_zero_where_no_group_differs(tmp_path: Path) -> None:
    drawn = [
        page(tmp_path / name, further)[1].replace(str(tmp_path / name), "")
        for name, further in (
            ("all", {"policy/entropy/mean": 0.7}),
            ("none-trained", {"policy/entropy/mean": 0.0, "rollout/entropy/mean": 0.7}),
            ("collapsed", {"policy/entropy/mean": 0.0, "rollout/entropy/mean": 0.0}),
        )
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_cost_is_split_by_role_and_that_of_rl_by_point_gained(run: tuple[str, str]) -> None:
    text, _ = run
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| user")]
    assert rows == [["user", "gpt-4o", "68", "0", "6,800", "1,360", "$0.07", "0"]]
    assert "RL's last step gained 10.0 points over SFT: 3 CPU seconds and $0.005 per point." in text


def test_why_a_conversation_was_rejected_is_shown_and_not_obeyed(run: tuple[str, str]) -> None:
    text, html = run
    assert HOSTILE in text
    assert HOSTILE not in html
    assert "&lt;img src=http://evil.test/x onerror=alert(1)&gt;" in html


def test_published_figures_stand_beside_with_what_differs(run: tuple[str, str]) -> None:
    text, _ = run
    (row,) = [line for line in text.splitlines() if line.startswith("| RL ") and "of 471 test tasks" in line]
    assert "0.5730" in row
