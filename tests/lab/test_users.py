"""The check of the user audit: planted errors are counted."""

from __future__ import annotations

import csv
from dataclasses import asdict

import pytest

from analysis.users.findings import USER_ERRORS
from lab.checks import users_planted
from tests.places import ROOT


@pytest.mark.slow
async def test_the_committed_table_of_planted_errors_is_what_the_script_counts():
    with (ROOT / "data" / "users" / "planted.csv").open(encoding="utf-8") as file:
        stored = list(csv.DictReader(file))
    counted = [await users_planted.planted(kind, range(users_planted.SEEDS)) for kind in USER_ERRORS]
    assert stored == [{name: str(value) for name, value in asdict(one).items()} for one in counted]
    assert {one.kind: one.alarms for one in counted if one.alarms} == {"ungrounded": 45}  # "your customer for 3 years"
