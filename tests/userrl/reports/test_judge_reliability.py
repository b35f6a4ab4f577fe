"""The sentence on the judge of turns in a run's report."""

from __future__ import annotations

from typing import Any

import pytest

from userrl.reports.document import Document
from userrl.reports.judge_reliability import judge_reliability
from userrl.reports.run_report import RunReport
from userrl.reports.run_summary import facts


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


def test_a_run_s_summary_names_the_reliability_of_its_judge_of_turns() -> None:
    report = RunReport(run="r", recipe="tarl", profile="laptop", seed=0, warehouse="", folder="")
    sentence = judge_reliability({"model": "rule"}, "r")
    assert sentence in Document("", tuple(facts(report.model_copy(update={"judge": sentence})))).text()
    assert "marked the turns" not in Document("", tuple(facts(report))).text()
