"""The checks of the user audit: planted errors are counted, and halves of one user are not told apart."""

from __future__ import annotations

import csv
from dataclasses import asdict

import pytest

from analysis.users.conversation import conversation
from analysis.users.distance import told_apart
from analysis.users.findings import USER_ERRORS
from lab.checks import users_halves, users_planted
from tests.analysis.users.recorded import recorded
from tests.places import ROOT
from tests.published import published


@pytest.mark.slow
async def test_the_committed_table_of_planted_errors_is_what_the_script_counts():
    with (ROOT / "data" / "users" / "planted.csv").open(encoding="utf-8") as file:
        stored = list(csv.DictReader(file))
    counted = [await users_planted.planted(kind, range(users_planted.SEEDS)) for kind in USER_ERRORS]
    assert stored == [{name: str(value) for name, value in asdict(one).items()} for one in counted]
    assert {one.kind: one.alarms for one in counted if one.alarms} == {"ungrounded": 45}  # "your customer for 3 years"


@pytest.mark.slow
async def test_halves_of_the_recorded_user_are_not_told_apart_and_the_rule_customer_is() -> None:
    first, second = users_halves.halves(recorded(published("tau-bench")), 0)
    said = [[(one.task.id, conversation(one).utterances()) for one in half] for half in (first, second)]
    rule = [(one.task.id, await users_halves.answered_by_rule(one)) for one in second]
    reference, other, customer = (
        users_halves.users(name, texts) for name, texts in zip("abc", (*said, rule), strict=True)
    )
    same, different = (told_apart(one, reference, trees=20) for one in (other, customer))
    assert same.low < 0.5
    assert different.low > 0.95
