"""The audit of tau-bench's 200 recorded airline conversations (gpt-4o as agent and as user)."""

from __future__ import annotations

import csv
from collections import Counter

import pytest

from analysis.users.audit import UserAudit, audit
from tests.analysis.users.recorded import recorded
from tests.places import ROOT
from tests.published import published
from userrl_core.gyms.tau.tasks import load_domain


@pytest.fixture(scope="module")
def audited() -> UserAudit:
    root = published("tau-bench")
    return audit(recorded(root), policy=load_domain("airline", str(root / "airline")))


def test_399_identifiers_are_said_and_three_of_them_in_one_conversation_have_no_ground(audited: UserAudit):
    assert sum(row.identifiers for row in audited.rows) == 399
    found = [(row, finding) for row in audited.rows for finding in row.user["ungrounded"]]
    ungrounded = Counter((row.task, row.key) for row, finding in found if finding.harmful)
    assert list(ungrounded.values()) == [3]
    assert len(found) == 32  # the others are numbers, places and names, and explain no failure
    assert next(iter(ungrounded))[0] == "tau-bench/46"


def test_147_conversations_are_stopped_by_the_user_and_three_of_them_too_early(audited: UserAudit):
    assert sum(row.stopped for row in audited.rows) == 147
    assert sum(bool(row.user["stopped early"]) for row in audited.rows) == 3


def test_every_failed_conversation_has_a_verdict(audited: UserAudit):
    assert len(audited.failed) == sum(not row.solved for row in audited.rows) == 116
    assert sum(audited.verdicts().values()) == 116
    assert audited.verdicts() == {"user": 4, "agent": 99, "both": 11, "neither seen": 2}


def test_gold_writes_that_break_a_rule_make_a_task_suspect(audited: UserAudit):
    broken = {task: reasons for task, reasons in audited.suspects.items() if set(reasons) != {"no attempt solves it"}}
    assert sorted(int(task.partition("/")[2]) for task in broken) == [10, 19, 22, 23, 26, 27, 34]
    assert "VA5SGQ pays for 1 bags, and the rule says 0" in broken["tau-bench/19"]


def test_scores_with_and_without_user_errors_have_limits(audited: UserAudit):
    assert audited.score is not None
    assert audited.without is not None
    assert audited.score.estimate == pytest.approx(0.42)
    assert audited.score.low < audited.score.estimate < audited.score.high
    assert audited.without.low < audited.without.estimate < audited.without.high


def test_the_committed_comparisons_of_halves_are_those_of_the_documentation() -> None:
    with (ROOT / "data" / "users" / "halves.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    apart = Counter(row["user"] for row in rows if row["apart"] == "true")
    assert apart == {"the other half without courtesy": 5, "the rule customer": 5}
    assert sum(len(row["below"].split()) for row in rows if row["user"] == "the other half") == 3
