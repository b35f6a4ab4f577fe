"""docs/core.md names passages that exist, and counts them right."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from tests.places import ROOT as REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))
from core_page import PAGE, ROOT, ROW, counted, definitions, passage, passages

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_passage_begins_and_ends_at_a_definition_and_the_sum_is_right() -> None:
    assert len(passages(TEXT)) == TEXT.count("](../userrl_core/") + TEXT.count("](../curricula/") + TEXT.count(
        "](../userrl/"
    ) + TEXT.count("](../examples/")
    assert counted(TEXT) == TEXT, "python scripts/core_page.py --write counts again"


def test_the_core_is_at_most_2500_lines_of_code() -> None:
    assert sum(read.code_lines for read in passages(TEXT)) <= 2500


def test_no_line_is_to_be_read_twice() -> None:
    lines = [(read.path, line) for read in passages(TEXT) for line in range(read.first, read.last + 1)]
    assert len(lines) == len(set(lines))


def test_a_passage_runs_from_the_first_line_of_one_definition_to_the_last_of_another() -> None:
    first, last = "CreditConfig", "CreditConfig"
    lines = definitions(ast.parse((ROOT / "userrl_core/rewards/config.py").read_text()))
    read = passage("userrl_core/rewards/config.py", f"`{first}`")
    assert (read.first, read.last) == (lines[first][0], lines[last][1])
    with pytest.raises(KeyError, match="Nowhere"):
        passage("userrl_core/rewards/config.py", "`Nowhere`")


def test_there_are_ten_questions_and_every_one_has_an_answer() -> None:
    _, questions, answers = re.split(r"^## (?:Questions|Answers)$", TEXT, flags=re.M)
    numbers = [str(n) for n in range(1, 11)]
    assert re.findall(r"^(\d+)\. ", questions, re.M) == numbers
    assert re.findall(r"^(\d+)\. ", answers, re.M) == numbers


def test_every_definition_that_an_answer_names_is_in_the_code() -> None:
    answers = TEXT.split("## Answers")[1]
    named = {
        name for group in re.findall(r"\(((?:`[\w.]+`(?:, )?)+)\)", answers) for name in re.findall(r"`([^`]+)`", group)
    }
    files = {match["path"] for match in ROW.finditer(TEXT)} | {
        f"userrl_core/training/local/{name}.py" for name in ("stage/restart", "state")
    }
    known = {
        name for file in files if file.endswith(".py") for name in definitions(ast.parse((ROOT / file).read_text()))
    }
    assert len(named) > 8
    assert not named - known
