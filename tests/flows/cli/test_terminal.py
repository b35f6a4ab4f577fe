"""What models, users and files say reaches a terminal as text, never as markup or as an order to it."""

import io
import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import Typer
from typer.testing import CliRunner

from flows.cli.answers.rows import Format, Rows, fitted, show, table
from flows.cli.looking.play import play
from flows.cli.looking.sql import app
from flows.cli.main import main
from flows.cli.terminal import plain, plain_json
from userrl.machine.home import imported_tasks
from userrl.run.known_tasks import task_by_seed
from userrl_core.gyms.taskfile import write_tasks

HOSTILE = "see [/INST] a [bold]b :smile: \x1b]0;title\x07\x1b[2J \x9b31m \u202etxt"


def written(capsys, format, *values):
    show(Rows(["content"], [[value] for value in values]), format)
    return capsys.readouterr().out


@given(st.text())
def test_plain_text_holds_nothing_that_a_terminal_obeys_and_is_left_alone_then(text):
    once = plain(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in once)
    assert plain(once) == once


@given(st.text())
def test_plain_json_says_the_same_to_a_program(text):
    assert json.loads(plain_json([text])) == [text]
    assert "\x9b" not in plain_json([text])


def test_marks_are_left_as_they_were_written_in_every_format(capsys):
    for format in (Format.TABLE, Format.MARKDOWN):
        said = written(capsys, format, HOSTILE)
        assert "[/INST] a [bold]b :smile:" in " ".join(said.split())
        assert not set("\x1b\x07\x9b\u202e") & set(said)
        assert "\\x1b" in said
    said = written(capsys, Format.JSON, HOSTILE)
    assert json.loads(said) == [{"content": HOSTILE}]
    assert not set("\x1b\x9b") & set(said)
    assert HOSTILE in written(capsys, Format.CSV, HOSTILE)  # a file gets the text itself


def test_a_bar_in_a_cell_does_not_make_another_markdown_column(capsys):
    assert written(capsys, Format.MARKDOWN, "a|b").splitlines()[-1] == "| a\\|b |"


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("format", [format for format in Format if format is not Format.PARQUET])
def test_values_that_python_lacks_are_shown_as_text(format, tmp_path):
    done = CliRunner().invoke(app, ["from test_all_types()", "--format", format, "--warehouse", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "5877642-06-25" in done.stdout


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(20, 250))
def test_a_table_is_never_wider_than_the_terminal_and_shows_what_fits(natural, width):
    shown, widths = fitted(natural, width)
    gap = 3 if len(shown) < len(natural) else 0
    assert sum(widths) + 2 * (len(widths) - 1) + gap <= width
    assert shown[0] == 0
    if sum(natural) + 2 * (len(natural) - 1) <= width and max(natural) <= 60:
        assert (shown, widths) == (list(range(len(natural))), natural)


def test_long_cells_and_middle_columns_are_left_out_with_a_mark():
    names = [f"column_{n}" for n in range(8)]
    lines, note = table(Rows(names, [["x" * 30, *range(6), "日本語" * 9]]), 60)
    assert note == "5 of 8 columns shown; --vertical shows everything, --out FILE saves it"
    assert "…" in lines[0].split()
    assert "日本…" in lines[2]
    assert table(Rows(["a"], [[1]]), 60) == (["a", "─", "1"], None)


def test_zero_has_no_sign(capsys):
    assert written(capsys, Format.VERTICAL, -0.0, -0.5).split()[-1] == "-0.5"
    assert "content  0.0\n" in written(capsys, Format.VERTICAL, -0.0)
    assert table(Rows(["avg(x)"], [[-0.0], [-1e-9]]), None)[0][2:] == ["     0", "-1e-09"]


def test_a_date_beyond_python_s_is_text(tmp_path):
    text = "select 'infinity'::date as d union all select date '2026-01-02'"
    done = CliRunner().invoke(app, [text, "--json", "--warehouse", str(tmp_path)])
    assert json.loads(done.stdout) == [{"d": "infinity"}, {"d": "2026-01-02"}]


def test_a_player_is_shown_no_escape_sequence_of_a_task_or_of_the_other_side(tmp_path, monkeypatch):
    monkeypatch.setenv("USERRL_HOME", str(tmp_path))
    task = task_by_seed("turtle", "train", 0)
    payload = {key: f"{value}\x1b[2J" if isinstance(value, str) else value for key, value in task.payload.items()}
    write_tasks(imported_tasks("turtle"), [replace(task, id="hostile", payload=payload)])
    cli = Typer()
    cli.command()(play)
    done = CliRunner().invoke(cli, ["turtle", "--task", "hostile"], input="quit\n")
    assert "\\x1b[2J" in done.output
    assert "\x1b" not in done.output


def test_a_terminal_of_another_encoding_gets_what_it_lacks_as_numbers(monkeypatch):
    answer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(answer, "latin-1", write_through=True))
    monkeypatch.setattr("flows.cli.main.app", lambda: print("caf\u00e9 \u2500\u2500 \u65e5"))
    main()
    assert answer.getvalue() == b"caf\xe9 \\u2500\\u2500 \\u65e5\n"
