from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.sql import app
from tests.warehouse.makers import play
from warehouse import TurnLog
from warehouse.upkeep.compact import compact

QUERY = "select stage, step, avg(score) from trajectories where split='train' group by all order by step"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    with TurnLog.open(folder, "r1") as log:
        for step in range(1, 4):
            play(log, [0.0, 1.0], step=step, score=step / 4, text="a needle" if step == 2 else "hay")
    compact(folder)
    return folder


def ask(root: Path, *arguments: str, exit_code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(app, [*arguments, "--warehouse", str(root)])
    assert result.exit_code == exit_code, result.output
    return result.stdout, result.stderr


def test_a_query_is_answered_as_json_table_csv_and_markdown(root: Path) -> None:
    rows, note = ask(root, QUERY, "--json")
    assert json.loads(rows) == [{"stage": "rl-1", "step": n, "avg(score)": n / 4} for n in (1, 2, 3)]
    assert note.startswith("3 rows as of ")
    assert ask(root, QUERY, "--format", "csv")[0].splitlines()[1] == "rl-1,1,0.25"
    assert ask(root, QUERY, "--format", "markdown")[0].splitlines()[2] == "| rl-1 | 1 | 0.25 |"
    assert "rl-1" in ask(root, QUERY)[0]


def test_a_long_answer_is_cut_and_says_so(root: Path) -> None:
    rows, note = ask(root, "SELECT * FROM range(100)", "--limit", "5", "--json")
    assert len(json.loads(rows)) == 5
    assert "there are more" in note


def test_words_are_searched_for(root: Path) -> None:
    rows, note = ask(root, "needle", "--search", "--json")
    assert [(row["step"], row["turn"]) for row in json.loads(rows)] == [(2, 2), (2, 1)]
    assert "0 newer turns" in note


def test_a_search_gets_the_time_that_was_given(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for _ in range(8):
            play(log, [0.0], text="a b x b c x " * 100_000)
    compact(tmp_path)
    error = ask(tmp_path, '"a b c"', "--search", "--limit", "1", "--seconds", "0.1", exit_code=1)[1]
    assert "After 0 s, 0 of" in error
    assert "0 turns, newest first" in ask(tmp_path, '"a b c"', "--search", "--limit", "1")[1]


@pytest.mark.parametrize("text", ["COPY turns TO 'x.csv'", "SELEC 1", "SELECT nothing FROM turns", ""])
def test_what_cannot_be_answered_is_one_message_and_exit_1(root: Path, text: str) -> None:
    _, error = ask(root, text, exit_code=1)
    assert error.startswith("userrl sql: ")


def test_a_missing_warehouse_is_one_sentence(tmp_path: Path) -> None:
    _, error = ask(tmp_path / "nowhere", "SELECT 1", exit_code=1)
    assert "There is no warehouse at" in error
