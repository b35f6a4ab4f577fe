"""Errors planted in a known share of conversations: each kind is found there and nowhere else."""

from __future__ import annotations

import csv
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.user_audit.faulty import WRONG_DATE, converse, moving_tasks
from userrl_core.user_audit.audit import UserAudit, audit, certain_error, possible
from userrl_core.user_audit.findings import USER_ERRORS

PLANTED_EVERY = 4
ROOT = Path(__file__).parents[2]


async def planted(fault: str, honest: str = "") -> tuple[UserAudit, set[int]]:
    """Audit conversations. Every fourth one has the fault."""
    tasks = moving_tasks(16)
    assert len(tasks) == 16
    with_fault = {i for i in range(len(tasks)) if i % PLANTED_EVERY == 0}
    played = [await converse(task, fault if i in with_fault else honest) for i, task in enumerate(tasks)]
    return audit(played), with_fault


@pytest.mark.parametrize("fault", list(USER_ERRORS))
async def test_each_kind_is_found_where_it_was_planted_and_nowhere_else(fault: str):
    found, with_fault = await planted(fault)
    having = {i for i, row in enumerate(found.rows) if row.user[fault]}
    assert having == with_fault
    assert found.kinds()[fault][1] == len(with_fault)
    others = {kind for row in found.rows for kind, findings in row.user.items() if findings} - {fault}
    assert others <= ({"unanswered"} if fault == "untold" else set())


async def test_an_honest_customer_shows_no_error_and_its_goal_is_settled():
    found, _ = await planted("")
    assert all(row.solved and row.verdict is None and not any(row.user.values()) for row in found.rows)
    assert all(row.goal is not None and row.goal.settled == row.goal.parts == 1 for row in found.rows)
    assert found.score is not None
    assert found.score.estimate == 1.0
    assert found.score == found.without


@pytest.mark.parametrize(
    ("fault", "verdict"), [("stopped early", "user"), ("gave in", "both"), ("refused", "agent"), ("untold", "user")]
)
async def test_a_failure_is_attributed_to_the_side_that_caused_it(fault: str, verdict: str):
    [task] = moving_tasks(1)
    row = audit([await converse(task, fault)]).rows[0]
    assert (row.solved, row.verdict) == (False, verdict)


async def test_a_wrong_write_is_named_with_its_argument():
    [task] = moving_tasks(1)
    row = audit([await converse(task, "refused")]).rows[0]
    [error] = row.agent or []
    assert error.kind == "wrong argument"
    assert WRONG_DATE in error.detail
    assert row.goal is not None
    assert (row.goal.settled, row.goal.parts) == (0, 1)


async def test_the_score_without_user_errors_leaves_out_certain_errors_whether_solved_or_not():
    found, with_fault = await planted("stopped early")
    assert found.score is not None
    assert found.without is not None
    assert found.score.estimate == pytest.approx(0.75)
    assert (found.without.estimate, found.without.units) == (1.0, 16 - len(with_fault))
    assert sum(certain_error(row) for row in found.rows) == len(with_fault)


async def test_a_kind_recognised_by_words_is_possible_and_moves_no_score_until_it_was_checked():
    found, _ = await planted("gave in")
    assert possible("gave in")
    assert found.score == found.without


async def test_a_task_that_no_attempt_solves_is_suspect():
    [task] = moving_tasks(1)
    found = audit([await converse(task, "refused"), await converse(task, "gave in")])
    assert found.suspects == {task.key: ("no attempt solves it",)}
    assert found.verdicts(suspect=True) == {"user": 0, "agent": 1, "both": 1, "neither seen": 0}
    assert audit([await converse(task, "refused")]).suspects == {}


@pytest.mark.slow
async def test_the_committed_table_of_planted_errors_is_what_the_script_counts():
    script = runpy.run_path(str(ROOT / "scripts" / "users_planted.py"))
    with (ROOT / "data" / "users" / "planted.csv").open(encoding="utf-8") as file:
        stored = list(csv.DictReader(file))
    counted = [await script["planted"](kind, range(script["SEEDS"])) for kind in USER_ERRORS]
    assert stored == [{name: str(value) for name, value in asdict(one).items()} for one in counted]
    assert sum(one.alarms for one in counted) == 0
