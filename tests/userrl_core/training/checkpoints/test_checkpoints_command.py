"""``userrl checkpoints``, ``userrl plot``, ``--version`` and completion in a shell."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import duckdb
import pytest
from PIL import Image
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

import userrl
from flows.cli.main import app
from tests.makers import raises
from tests.userrl_core.training.checkpoints.makers import RUN
from userrl.machine.hashes import file_hash
from userrl.reports.checkpoints import listed_checkpoints
from userrl.reports.figures import _mark_rows
from userrl.reports.plots import plot_curves
from userrl.reports.trained_run import TrainedRun
from userrl.run.run import find
from userrl_core.records import CheckpointRecord
from warehouse import TurnLog


def test_checkpoints_have_their_scores_and_really_load_with_transformers(home: Path) -> None:
    rows, deleted = listed_checkpoints(find("latest"))
    assert [(row.stage, row.step, row.score, row.chosen, row.problem) for row in rows] == [
        ("sft", 60, 0.25, False, ""),
        ("rl-1", 2, 0.75, True, ""),
    ]
    assert deleted == 1
    for row in rows:
        assert row.path.is_relative_to(home)
        model, tokenizer = AutoModelForCausalLM.from_pretrained(row.path), AutoTokenizer.from_pretrained(row.path)
        assert model.num_parameters() * 4 == pytest.approx(row.megabytes * 1e6, rel=0.1)
        assert tokenizer.chat_template


def test_a_checkpoint_of_a_stage_that_began_anew_is_the_later_one_of_its_folder(home: Path) -> None:
    earlier = listed_checkpoints(find(RUN))[0][1]
    with TurnLog.open(home / "warehouse", RUN) as log:
        log.checkpoint(CheckpointRecord("rl-1-000002-later", str(earlier.path), "rl-1", 2, "later", score=0.125))
    rows, _ = listed_checkpoints(find(RUN))
    assert [(row.id, row.score) for row in rows[1:]] == [("rl-1-000002-later", 0.125)]


def test_a_checkpoint_that_transformers_cannot_load_names_the_problem(home: Path) -> None:
    sft, rl = (row.path for row in listed_checkpoints(find(RUN))[0])
    (sft / "tokenizer.json").unlink()
    config = json.loads((rl / "config.json").read_text())
    (rl / "config.json").write_text(json.dumps({**config, "vocab_size": 7}))
    state = json.loads((rl / "state.json").read_text())
    state["files"]["config.json"] = file_hash(rl / "config.json")
    (rl / "state.json").write_text(json.dumps(state))
    without, _ = listed_checkpoints(find(RUN))
    assert "has no file tokenizer.json" in without[0].problem
    assert without[1].problem == ""  # a shape is seen when it is loaded
    loaded, _ = listed_checkpoints(find(RUN), load=True)
    assert "does not fit the shape of" in loaded[1].problem
    weights = rl / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "damaged" in listed_checkpoints(find(RUN))[0][1].problem


def test_the_library_lists_checkpoints_and_draws_the_curve(home: Path, tmp_path: Path) -> None:
    run = userrl.report("latest")
    assert isinstance(run, TrainedRun)
    listed = run.checkpoints(load=True)
    assert listed.select("stage", "step", "score", "chosen", "problem").rows() == [
        ("sft", 60, 0.25, False, ""),
        ("rl-1", 2, 0.75, True, ""),
    ]
    assert Path(listed["path"][1]).is_relative_to(home)
    assert run.plot(tmp_path / "curve.svg", "recipe=equalized-r2g").read_text().count("recipe=equalized-r2g")


def test_the_command_lists_checkpoints_and_names_the_next_one(home: Path) -> None:
    said = CliRunner().invoke(app, ["checkpoints", "--load"])
    lines = said.output.splitlines()
    assert lines[1].split()[:3] == ["sft", "60", "0.250"]
    assert lines[2].split()[:3] == ["rl-1", "2", "0.750"]
    assert lines[2].split()[-1] == "*"
    assert "loads" in lines[1]
    assert lines[-1].startswith("next: userrl evaluate ")
    as_json = json.loads(CliRunner().invoke(app, ["checkpoints", RUN, "--json"]).output)
    assert [row["step"] for row in as_json] == [60, 2]


def test_printed_commands_quote_paths_with_spaces_and_quotes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = home.rename(tmp_path / "Ann's home")
    monkeypatch.setenv("USERRL_HOME", str(moved))
    said = CliRunner().invoke(app, ["checkpoints"]).output.splitlines()[-1]
    assert Path(shlex.split(said)[3]).is_relative_to(moved)
    target = tmp_path / 'the "export"'
    said = CliRunner().invoke(app, ["warehouse", "export", str(target)]).output.splitlines()[-1]
    duckdb_, option, query = shlex.split(said.removeprefix("Next: "))
    assert (duckdb_, option) == ("duckdb", "-c")
    assert duckdb.sql(query).fetchall() == [(10,)]


def test_curves_of_runs_and_groups_are_drawn_into_a_picture(home: Path, tmp_path: Path) -> None:
    png = plot_curves(["latest"], tmp_path / "new" / "curve.png")
    assert Image.open(png).size[0] > 1000
    drawing = plot_curves(["latest", "recipe=equalized-r2g"], tmp_path / "curve.svg").read_text()
    assert drawing.startswith("<?xml")
    assert f">{RUN}<" in drawing
    assert ">recipe=equalized-r2g<" in drawing


def test_what_cannot_be_drawn_is_refused(home: Path, tmp_path: Path) -> None:
    with raises("argument.malformed", ".png, .svg, .pdf"):
        plot_curves(["latest"], tmp_path / "curve.jpg")
    with raises("compare.bad_sides", "published:Qwen3-8B"):
        plot_curves(["published:Qwen3-8B"], tmp_path / "curve.png")
    with raises("run.no_such_run"):
        plot_curves(["none"], tmp_path / "curve.png")
    assert not (tmp_path / "curve.png").exists()
    with raises("argument.missing", "The name of the run is empty"):
        plot_curves([""], tmp_path / "curve.png")


@pytest.mark.parametrize(
    "command", [["plot", "latest", "--out"], ["report", "latest", "--html"], ["bundle", "latest", "--out"]]
)
def test_a_place_that_cannot_be_written_is_one_sentence(home: Path, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, [*command, str(tmp_path / "file" / "below.png")])
    assert done.exit_code == 1
    assert "Choose another place. [file.not_writable]" in done.output


def test_names_of_stages_that_would_cover_each_other_have_rows_of_their_own(home: Path, tmp_path: Path) -> None:
    marks = [
        (1.0, "rl-1: 6 turns"),
        (30.0, "rl-2-short: 6 turns"),
        (30.0, "rl-3-longer: 10 turns"),
        (59.0, "rl-4: 16 turns"),
    ]
    assert _mark_rows(marks, (0.0, 107.0)) == [0, 0, 1, 2]
    assert _mark_rows(marks, (0.0, 60.0)) == [0, 0, 1, 0]


def test_the_version_is_that_of_the_package() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.output.split()[:2]) == (0, ["userrl", version("userrl")])


def test_a_shell_completes_commands_and_runs(home: Path) -> None:
    def completed(words: str) -> list[str]:
        given = {"_USERRL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        code = "import sys; sys.argv = ['userrl']; from flows.cli.start import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **given}, capture_output=True, text=True, check=False
        )
        return done.stdout.split()

    assert completed("userrl check") == ["checkpoints"]
    assert completed("userrl report sma") == [RUN]
