"""Errors planted in a known share of conversations: each kind is found there and nowhere else."""

from __future__ import annotations

import json

import pytest

from analysis.users.audit import UserAudit, audit
from analysis.users.findings import (
    BY_WORDS,
    USER_ERRORS,
    Audited,
    Finding,
    Findings,
    UserError,
    possible,
    shows_certain_error,
    verdict,
)
from tests.analysis.users.faulty import WRONG_DATE, converse, moving_tasks
from userrl_core.records import Task, Trajectory, Turn

PLANTED_EVERY = 4


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
    ("fault", "expected"),
    [
        ("stopped early", "neither seen"),
        ("gave in", "agent"),
        ("refused", "agent"),
        ("untold", "user"),
    ],
)
async def test_a_failure_is_attributed_to_the_side_that_certainly_caused_it(fault: str, expected: str):
    [task] = moving_tasks(1)
    row = audit([await converse(task, fault)]).rows[0]
    assert (row.solved, row.verdict) == (False, expected)


@pytest.mark.parametrize("kind", sorted(BY_WORDS))
def test_a_possible_error_of_the_user_decides_no_verdict(kind: UserError):
    found = Findings(user={kind: [Finding(kind, 1, "words")]}, agent=[])
    assert verdict(found) == ("neither seen" if possible(kind) else "user")
    found.blame("missing", 1, "a write")
    assert verdict(found) == ("agent" if possible(kind) else "both")


def told(task: Task, *turns: tuple[str, str, str], stopped: bool = True) -> Audited:
    """Audit a conversation of the desk. turns: choice, the agent's content and what came back."""
    rows = [Turn(i, choice, content, content, content, seen, 0.0) for i, (choice, content, seen) in enumerate(turns, 1)]
    if stopped:
        rows[-1].observation += " ###STOP###"
    talk = Trajectory(task, 0, 8, 0, turns=rows, stop_reason="gave_up", score=0.0)
    return audit([talk]).rows[0]


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        # The agent asks for one fact, then hands the customer over.
        ([("action", "What is your name?", "It is Ann."), ("action", "I transfer you to a human.", "")], 0),
        # It declines before the customer has said anything.
        ([("action", "I am sorry, I cannot help.", "Goodbye.")], 0),
        # It asks for a fact until the end.
        ([("action", "What is your name?", "It is Ann.")], 0),
        # It hands the customer over by a call, and says so.
        ([("answer", '{"name": "transfer_to_human_agents", "arguments": {"summary": "x"}}', "Done"),
          ("action", "You are with a colleague now.", "")], 0),
        # It asks what it can do, and the customer says nothing of its goal.
        ([("action", "How can I help you?", "Hello."), ("action", "I am sorry, I cannot help.", "Bye.")], 1),
        ([("action", "Welcome.", "Hello."), ("action", "Is there anything else?", "No.")], 1),
    ],
)  # fmt: skip
def test_a_goal_is_untold_only_if_the_agent_left_the_customer_the_word(turns: list[tuple[str, str, str]], found: int):
    [task] = moving_tasks(1)
    row = told(task, *turns)
    assert len(row.user["untold"]) == found


def write_of(task: Task, **changed: str) -> str:
    """Return a call of the task's write with other arguments."""
    gold = task.payload["actions"][-1]
    return json.dumps({"name": gold["name"], "arguments": gold["kwargs"] | changed})


@pytest.mark.parametrize(
    ("proposal", "reply", "gave_in"),
    [
        (f"Shall I move it to {WRONG_DATE}?", "Yes, please.", True),
        ("Shall I move it as you said?", "Yes, please.", False),
        ("Shall I move it to 2026-01-02?", "Yes, please.", False),
        ("Do you confirm your name?", "Yes, that is right.", False),
        (f"Shall I move it to {WRONG_DATE}?", "Sure, but not on that day.", False),
        (f"Shall I move it to {WRONG_DATE}?", "Yes to the change. I don't want that day.", False),
        (f"I could move it to {WRONG_DATE}.", "Yes, that is a day.", True),
    ],
)
def test_a_customer_gave_in_only_by_agreeing_to_the_write_that_was_made(proposal: str, reply: str, gave_in: bool):
    [task] = moving_tasks(1)
    opened = ("action", "How can I help?", "I want to change my booking.")
    done = ("action", "It is done.", "Thank you.")
    row = told(task, opened, ("action", proposal, reply), ("answer", write_of(task, date=WRONG_DATE), "{}"), done)
    assert (bool(row.user["gave in"]), row.verdict) == (gave_in, "agent")


def test_an_extra_write_is_agreed_to_only_if_the_proposal_names_it():
    [task] = moving_tasks(1)
    number = task.payload["actions"][-1]["kwargs"]["booking_id"]
    cancel = json.dumps({"name": "cancel_booking", "arguments": {"booking_id": number}})
    for proposal, gave_in in ((f"Shall I cancel {number}?", True), (f"Is {number} the booking?", False)):
        row = told(
            task, ("action", proposal, "Yes."), ("answer", cancel, "{}"), ("action", "It is done.", "Thank you.")
        )
        assert bool(row.user["gave in"]) is gave_in


async def test_a_wrong_write_is_named_with_its_argument():
    [task] = moving_tasks(1)
    row = audit([await converse(task, "refused")]).rows[0]
    [error] = row.agent or []
    assert error.kind == "wrong argument"
    assert WRONG_DATE in error.detail
    assert row.goal is not None
    assert (row.goal.settled, row.goal.parts) == (0, 1)


async def test_the_score_without_user_errors_leaves_out_certain_errors_whether_solved_or_not():
    found, with_fault = await planted("untold")
    assert found.score is not None
    assert found.without is not None
    assert found.score.estimate == pytest.approx(0.75)
    assert (found.without.estimate, found.without.units) == (1.0, 16 - len(with_fault))
    assert sum(shows_certain_error(row.user) for row in found.rows) == len(with_fault)


def test_a_kind_recognised_by_words_is_possible_and_moves_no_score_until_it_was_checked():
    assert {kind for kind in BY_WORDS if not possible(kind)} == {"unanswered"}
    assert not shows_certain_error({"gave in": [Finding("gave in", 1, "a write")]})
    assert shows_certain_error({"unanswered": [Finding("unanswered", 1, "a write")]})


async def test_a_task_that_no_attempt_solves_is_suspect():
    [task] = moving_tasks(1)
    found = audit([await converse(task, "refused"), await converse(task, "gave in")])
    assert found.suspects == {task.key: ("no attempt solves it",)}
    assert found.verdicts(suspect=True) == {"user": 0, "agent": 2, "both": 0, "neither seen": 0}
    assert audit([await converse(task, "refused")]).suspects == {}
