from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from flows.cli.answers.prompt import words
from flows.cli.answers.rows import Format, Rows, save
from flows.cli.main import app
from tests.makers import raises
from tests.warehouse.makers import play
from warehouse import TurnLog, open_warehouse, schema, views
from warehouse.query.fetch import distinct_names
from warehouse.query.sandbox import ask as asked
from warehouse.upkeep.compact import compact

pytestmark = pytest.mark.usefixtures("prepared_module")

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
    result = CliRunner().invoke(app, ["sql", *arguments, "--warehouse", str(root)])
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


def test_columns_of_one_name_are_all_kept_under_the_names_of_a_parquet_file(root: Path, tmp_path: Path) -> None:
    text = "SELECT t.score, r.n AS score, 7 AS score_1, 8 AS Score FROM trajectories t, (SELECT 2 AS n) r LIMIT 1"
    names, values = ["score", "score_1", "score_1_1", "Score_2"], (0.25, 2, 7, 8)
    assert json.loads(ask(root, text, "--json")[0]) == [dict(zip(names, values, strict=True))]
    answer = asked(root, text)
    files = {format: tmp_path / f"rows.{format}" for format in Format}
    for format, file in files.items():
        save(Rows(answer.columns, answer.rows, answer.types), format, file)
    stored = duckdb.sql(f"FROM '{files.pop(Format.PARQUET)}'")
    assert (stored.columns, stored.fetchall()) == (names, [values])
    assert json.loads(files.pop(Format.JSON).read_text()) == [dict(zip(names, values, strict=True))]
    vertical = [line.split() for line in files.pop(Format.VERTICAL).read_text().splitlines()[1:]]
    assert vertical == [[name, str(value)] for name, value in zip(names, values, strict=True)]
    for file in files.values():
        first, *_, last = [re.findall(r"[\w.]+", line) for line in file.read_text().splitlines()]
        assert (first, last) == (names, list(map(str, values))), file


def test_columns_of_one_name_are_all_in_the_library_s_rows(root: Path) -> None:
    with open_warehouse(root) as warehouse:
        assert warehouse.sql("SELECT 1 AS a, 2 AS a").columns == ["a", "a_1"]
        assert warehouse.arrow("SELECT 1 AS a, 2 AS A, 3 AS a_1").to_pylist() == [{"a": 1, "A_1": 2, "a_1_1": 3}]
        assert warehouse.rows("SELECT 1 AS a, 2 AS a") == [{"a": 1, "a_1": 2}]


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["a", "A", "a_1", "A_1", "a_1_1", "a_2", "b"]), min_size=1, max_size=7))
def test_names_are_those_that_duckdb_gives_a_parquet_file(names: list[str]) -> None:
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        selected = ", ".join(f"{n} AS {name}" for n, name in enumerate(names))
        duckdb.sql(f"SELECT {selected}").to_parquet(file.name)
        assert distinct_names(names) == duckdb.sql(f"FROM '{file.name}'").columns


HUGE = 2**100
EXACT = [
    ("'nan'::DOUBLE", None, ("DOUBLE", "nan")),
    ("['inf'::FLOAT, NULL, 1.5]", [None, None, 1.5], ("FLOAT[]", "[inf, NULL, 1.5]")),
    ("{'x': '-inf'::DOUBLE}", {"x": None}, ("VARCHAR", '{"x": null}')),
    (f"{HUGE}", str(HUGE), ("VARCHAR", str(HUGE))),
    (f"[1::HUGEINT, {HUGE}]", [1, str(HUGE)], ("VARCHAR[]", f"[1, {HUGE}]")),
    ("[[-3::HUGEINT], NULL]", [[-3], None], ("BIGINT[][]", "[[-3], NULL]")),
    ("18446744073709551615::UBIGINT", 2**64 - 1, ("UBIGINT", str(2**64 - 1))),
    ("'12345678901234567890123'::BIGNUM", "12345678901234567890123", ("VARCHAR", "12345678901234567890123")),
    ("INTERVAL '3 days 2 hours'", "3 days 02:00:00", ("INTERVAL", "3 days 02:00:00")),
    ("INTERVAL '2000 hours'", "2000:00:00", ("INTERVAL", "83 days 08:00:00")),
    (
        "INTERVAL '14 months 1 millisecond'",
        "1 year 2 months 00:00:00.001",
        ("INTERVAL", "1 year 2 months 00:00:00.001"),
    ),
    ("INTERVAL '1 microsecond'", "00:00:00.000001", ("VARCHAR", "00:00:00.000001")),
    ("INTERVAL '-1 days'", "-1 day", ("VARCHAR", "-1 day")),
    ("[INTERVAL '2 days', NULL]", ["2 days", None], ("INTERVAL[]", "[2 days, NULL]")),
    ("{'a': INTERVAL '1 month', 'b': ['infinity'::DATE]}", {"a": "1 month", "b": ["infinity"]}, None),
    ("MAP {'k': INTERVAL '25 hours'}", {"k": "25:00:00"}, None),
    ("'\\xAA\\x00'::BLOB", "aa00", ("VARCHAR", "aa00")),
    ("['\\xAA'::BLOB]", ["aa"], ("VARCHAR[]", "[aa]")),
    ("['a\"b\\n', 'null', NULL]", ['a"b\\n', "null", None], ("VARCHAR[]", "['a\"b\\\\n', 'null', NULL]")),
    ("1.50::DECIMAL(10, 2)", "1.50", ("DECIMAL(10,2)", "1.50")),
]
"""An expression, its value in JSON, and its type and text in Parquet (None: as JSON)."""


def test_no_value_is_bent_on_the_way_to_json_or_parquet(root: Path, tmp_path: Path) -> None:
    text = "SELECT " + ", ".join(f"{expression} AS c{n}" for n, (expression, _, _) in enumerate(EXACT))
    (row,) = json.loads(ask(root, text, "--json")[0], parse_constant=lambda name: pytest.fail(name))
    assert list(row.values()) == [value for _, value, _ in EXACT]
    ask(root, text, "--out", str(tmp_path / "rows.parquet"))
    kept = duckdb.sql(f"SELECT * FROM '{tmp_path}/rows.parquet'")
    texts = kept.project("COLUMNS(*)::VARCHAR").fetchall()[0]
    stored = [stored or ("VARCHAR", json.dumps(value)) for _, value, stored in EXACT]
    assert list(zip(map(str, kept.types), texts, strict=True)) == stored


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
    assert process.wait(300) == 0
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
