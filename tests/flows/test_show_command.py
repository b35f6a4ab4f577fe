"""`userrl show`: one conversation in the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from flows.cli.looking.show import show
from tests.warehouse.makers import play
from warehouse import TurnLog

cli = typer.Typer()
cli.command()(show)

HOSTILE = "\x1b[2Jgone \u202eback"


def call(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--warehouse", str(root)])


def filled(root: Path) -> int:
    with TurnLog.open(root, "r1") as log:
        return play(log, [0.0, 1.0], text=HOSTILE + "x" * 3_000, credits=[0.5, 1.0]).traj_id or 0


def test_a_conversation_is_printed_turn_by_turn_with_what_it_earned(tmp_path: Path) -> None:
    shown = call(tmp_path, str(filled(tmp_path)))
    assert shown.exit_code == 0
    assert "travel t1, run r1, rl-1 step 1 (train), attempt 1" in shown.output
    assert "success after 2 of 8 turns, score 1.000" in shown.output
    assert "-- turn 2: reward +1.000, shaped +1.000, advantage +2.000; 5 tokens, 0.50 s and 0.25 s" in shown.output


def test_hostile_text_is_written_out_and_long_text_is_cut_unless_asked_for(tmp_path: Path) -> None:
    traj_id = str(filled(tmp_path))
    shown = call(tmp_path, traj_id).output
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[2Jgone \\u202eback" in shown
    assert "--full prints them" in shown
    assert "x" * 3_000 not in shown
    assert "x" * 3_000 in call(tmp_path, traj_id, "--full").output


def test_programs_get_json_and_an_unknown_id_is_one_sentence(tmp_path: Path) -> None:
    traj_id = filled(tmp_path)
    read = json.loads(call(tmp_path, str(traj_id), "--json").output)
    assert (read["trajectory"]["traj_id"], len(read["turns"])) == (traj_id, 2)
    missing = call(tmp_path, "17")
    assert missing.exit_code == 1
    assert "There is no trajectory 17" in missing.output
