"""The sentence on the judge of turns in a run's report."""

from __future__ import annotations

from typing import Any

import pytest

from userrl.reports.judge_reliability import judge_reliability


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (
            {"model": "rule"},
            "version 1, marked the turns. On 36 failed conversations that it was not made for, 7 and 8 of its 35",
        ),
        ({"model": "rule", "version": 2}, "16 and 19 of its 31 marks"),
        ({"model": "rule", "version": 3}, "Its error was not measured."),
        ({"model": "gpt-4.1"}, "userrl audit judge r"),
    ],
)
def test_a_report_says_how_reliable_its_judge_of_turns_is(judge: dict[str, Any], words: str) -> None:
    assert words in judge_reliability(judge, "r")
