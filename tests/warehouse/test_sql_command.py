from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import date
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from flows.cli.answers.prompt import words
from flows.cli.looking.sql import app
from tests.makers import raises
from tests.warehouse.makers import play
from warehouse import TurnLog, open_warehouse, schema, views
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


def test_after_a_slow_answer_over_many_files_it_says_what_makes_it_quicker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0])
    monkeypatch.setattr("flows.cli.looking.sql.SLOW_SECONDS", 0.0)
    _, quiet = ask(tmp_path, "SELECT 1", "--json")
    monkeypatch.setattr("flows.cli.looking.sql.MANY_FILES", 1)
    _, note = ask(tmp_path, "SELECT 1", "--json")
    assert "note:" not in quiet
    assert "files of ended runs; `userrl warehouse compact` merges them" in note
    compact(tmp_path)
    assert "note:" not in ask(tmp_path, "SELECT 1", "--json")[1]


def test_words_are_searched_for(root: Path) -> None:
    rows, note = ask(root, "needle", "--search", "--json")
    assert [(row["step"], row["turn"]) for row in json.loads(rows)] == [(2, 2), (2, 1)]
    assert "0 newer turns" in note


def test_rows_go_to_a_file_in_the_format_of_its_name(root: Path, tmp_path: Path) -> None:
    typed = "SELECT 1::BIGINT AS n, 0.5::DOUBLE AS x, DATE '2026-01-02' AS d, [1, 2] AS l, true AS b, 'a\tb' AS t, NULL AS z"
    for ending in ("parquet", "json", "csv", "tsv", "md"):
        shown, note = ask(root, typed, "--out", str(tmp_path / f"rows.{ending}"))
        assert (shown, note[:7]) == ("", "1 rows ")
    kept = duckdb.sql(f"FROM '{tmp_path}/rows.parquet'")
    assert [str(kind) for kind in kept.types[:6]] == ["BIGINT", "DOUBLE", "DATE", "INTEGER[]", "BOOLEAN", "VARCHAR"]
    assert kept.fetchall() == [(1, 0.5, date(2026, 1, 2), [1, 2], True, "a\tb", None)]
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row == {"n": 1, "x": 0.5, "d": "2026-01-02", "l": [1, 2], "b": True, "t": "a\tb", "z": None}
    assert (tmp_path / "rows.tsv").read_text().splitlines()[1] == '1\t0.5\t2026-01-02\t[1, 2]\tTrue\t"a\tb"\t'
    ask(root, "SELECT * FROM range(300)", "--out", str(tmp_path / "all.csv"))
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 301
    assert "Add --out" in ask(root, "SELECT 1", "--format", "parquet", exit_code=1)[1]


def test_vertical_shows_every_column_on_its_line(root: Path) -> None:
    lines = ask(root, "SELECT 1 AS one, 'a\nb' AS text", "--vertical")[0].splitlines()
    assert [line.split() for line in lines[1:]] == [["one", "1"], ["text", "a"], ["b"]]


def test_runs_are_named_in_sql_as_everywhere(root: Path) -> None:
    counts = [
        json.loads(ask(root, f"SELECT count(*) AS n FROM learning_curve({said})", "--json")[0])
        for said in ("run := 'latest'", "run => 'r'", "'r1', in_phase := NULL", "")
    ]
    assert counts == [[{"n": 3}]] * 4
    for said in ("run := 'r2'", "'nosuch'"):
        assert "There is no run" in ask(root, f"FROM learning_curve({said})", exit_code=1)[1]
    said = "SELECT 'run := ''latest''' AS text -- run := 'nosuch'"
    assert json.loads(ask(root, said, "--json")[0]) == [{"text": "run := 'latest'"}]
    with open_warehouse(root) as warehouse:
        assert len(warehouse.sql("FROM learning_curve(run := 'latest')").fetchall()) == 3
        with raises("run.no_such_run", "'nosuch'"):
            warehouse.sql("FROM learning_curve(run := 'nosuch')")


def test_the_dictionary_describes_every_name_and_its_examples_can_be_run(root: Path) -> None:
    rows = json.loads(ask(root, "FROM dictionary", "--json", "--limit", "10000")[0])
    assert [row for row in rows if not row["description"]] == []
    names = {row["name"] for row in rows if row["column_name"] is None}
    assert {*schema.tables(), *views.queries(), "dictionary", "turns_all", "reference.userrl_table3"} <= names
    assert {"object", "example"} <= {row["column_name"] for row in rows if row["name"] == "dictionary"}
    assert names == {row["name"] for row in rows if row["column_name"]}
    rescore = next(row for row in rows if row["name"] == "rescore")
    assert rescore["arguments"].startswith("run, with_shaping := 'equalized'")
    with open_warehouse(root) as warehouse:
        shown = {
            name for (name,) in warehouse.sql("SELECT table_name FROM duckdb_columns() WHERE NOT internal").fetchall()
        }
        assert {name.removeprefix("reference.") for name in names} - shown <= set(views.queries())
        for example in {row["example"] for row in rows if row["example"]}:
            warehouse.sql(example)
        undescribed = "SELECT table_name, column_name FROM duckdb_columns() WHERE comment IS NULL AND NOT internal"
        left = f"{undescribed} AND schema_name IN ('main', 'reference') AND database_name = current_database()"
        assert warehouse.sql(left).fetchall() == []


def test_comments_stay_when_a_rewind_arrives(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log, open_warehouse(tmp_path) as warehouse:
        comment = "SELECT comment FROM duckdb_columns() WHERE table_name = 'turns' AND column_name = 'turn'"
        before = warehouse.sql(comment).fetchall()
        log.event("rewind", step=0)
        assert warehouse.sql(comment).fetchall() == before
        assert before[0][0]


def test_the_prompt_answers_completes_and_says_what_is_wrong(root: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "flows.cli.main", "sql", "--warehouse", str(root)]
    environment = {
        **os.environ,
        "USERRL_HOME": str(tmp_path),
        "TERM": "xterm",
        "COLUMNS": "80",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""

    def until(words: bytes) -> None:
        nonlocal said
        while words not in said:
            said += os.read(ours, 4096)

    until(b"userrl>")
    os.write(ours, b"select 40 +\r2 as the_sum;\r")
    until(b"42")
    until(b"1 rows as of")
    os.write(ours, b"from nowhere_at_all;\r")
    until(b"error:")
    os.write(ours, b"exit\r")
    assert process.wait(30) == 0
    os.close(ours)
    assert "nowhere_at_all" in (tmp_path / "sql_history").read_text()
    assert {"trajectories", "stop_reason", "gym_scores", "in_phase :=", "dictionary"} <= set(words())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("COPY turns TO 'x.csv'", "sql.not_a_select"),
        ("SELEC 1", "sql.wrong"),
        ("SELECT nothing FROM turns", "sql.wrong"),
        ("", "sql.not_a_select"),
    ],
)
def test_what_cannot_be_answered_is_one_message_and_exit_1(root: Path, text: str, code: str) -> None:
    _, error = ask(root, text, exit_code=1)
    assert error.startswith("error: ")
    assert error.splitlines()[0].endswith(f"[{code}]")


def test_an_unknown_table_is_answered_with_where_tables_are_listed(root: Path) -> None:
    _, error = ask(root, "FROM nope", exit_code=1)
    assert "Did you mean" not in error
    assert error.splitlines()[-1] == "`from dictionary` lists tables and columns."


def test_a_file_without_the_suffix_of_a_format_is_refused(root: Path, tmp_path: Path) -> None:
    _, error = ask(root, "SELECT 1", "--out", str(tmp_path / "rows.xyz"), exit_code=1)
    assert "has no suffix of a row format (.json, .csv" in error
    assert not (tmp_path / "rows.xyz").exists()


def test_a_missing_warehouse_is_one_sentence(tmp_path: Path) -> None:
    _, error = ask(tmp_path / "nowhere", "SELECT 1", exit_code=1)
    assert "There is no warehouse at" in error
