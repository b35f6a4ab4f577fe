"""The standard error of an evaluation: its unit is the task, however many attempts a task has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.makers import play
from userrl.reports.write_report import forgotten_sentences
from userrl.run.results import GymScore
from userrl.worker.evaluate import _row
from userrl.worker.played import Played
from warehouse import TurnLog, open_warehouse


def evaluated(root: Path, scores: list[list[float]]) -> GymScore:
    """The scores of an evaluation that is stored too. scores: of each task's attempts."""
    with TurnLog.open(root, "r1") as log:
        played = [
            Played.of(
                play(
                    log,
                    [score],
                    task=f"t{task}",
                    tier="easy",
                    attempt=attempt,
                    stage="evaluate",
                    phase="evaluate",
                    score=score,
                )
            )
            for task, attempts in enumerate(scores)
            for attempt, score in enumerate(attempts)
        ]
    return _row(played)


def stored_errors(root: Path) -> list[Any]:
    """The standard errors of the gym, its tier and both in `comparable_scores`."""
    queries = ("gym_scores()", "tier_scores()", "comparable_scores() WHERE metric = 'score' AND gym = 'travel'")
    with open_warehouse(root) as warehouse:
        return [
            error for query in queries for (error,) in warehouse.sql(f"SELECT standard_error FROM {query}").fetchall()
        ]


@pytest.mark.parametrize("attempts", [1, 16])
def test_equal_attempts_at_a_task_make_no_error_smaller(tmp_path: Path, attempts: int) -> None:
    row = evaluated(tmp_path, [[0.0] * attempts, [1.0] * attempts] * 5)
    assert (row.score, row.attempts) == (0.5, 10 * attempts)
    assert [row.stderr, *stored_errors(tmp_path)] == pytest.approx([1 / 6] * 5, rel=1e-15)


def test_the_attempts_at_a_task_are_averaged_first(tmp_path: Path) -> None:
    row = evaluated(tmp_path, [[0.0, 1.0], [0.0, 0.0, 0.0], [1.0]])  # the tasks' means are 1/2, 0 and 1
    assert (row.score, row.attempts) == (pytest.approx(1 / 3), 6)
    assert [row.stderr, *stored_errors(tmp_path)] == pytest.approx([0.5 / 3**0.5] * 5)


def test_a_single_task_has_no_error_and_no_forgetting(tmp_path: Path) -> None:
    now = evaluated(tmp_path, [[0.0, 1.0]])
    assert (now.score, now.stderr) == (0.5, None)
    assert stored_errors(tmp_path) == [None] * 4
    before, error = GymScore(score=0.9, stderr=None, attempts=2), {"stderr": 0.01}
    assert forgotten_sentences({"SFT": {"travel": before}, "RL": {"travel": now}}) == ()
    table = {"SFT": {"travel": before.model_copy(update=error)}, "RL": {"travel": now.model_copy(update=error)}}
    assert forgotten_sentences(table) == ("Forgetting at travel: RL scores 0.500 ± 0.010, SFT scored 0.900 ± 0.010.",)
