"""`userrl show`: one conversation in the terminal."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from flows.cli.main import app
from tests.warehouse.makers import play
from warehouse import TurnLog

HOSTILE = "\x1b[2Jgone \u202eback"


def call(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["show", *arguments, "--warehouse", str(root)])


def filled(root: Path) -> int:
    with TurnLog.open(root, "r1") as log:
        return play(log, [0.0, 1.0], text=HOSTILE + "x" * 3_000, credits=[0.5, 1.0]).traj_id or 0


def test_a_conversation_is_printed_turn_by_turn_with_what_it_earned(tmp_path: Path) -> None:
    shown = call(tmp_path, str(filled(tmp_path)))
    assert shown.exit_code == 0
    assert "travel t1, run r1, rl-1 step 1 (train), attempt 1" in shown.output
    assert "success after 2 of 8 turns, score 1.000" in shown.output
    assert (
        "-- turn 2: reward +1.000, shaped +1.000, advantage +2.000; 5 tokens, agent 0.50 s, user 0.25 s" in shown.output
    )


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


def test_a_failed_conversation_says_where_it_left_the_best_one_on_its_task(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        best = play(log, [0.5, 0.0, 0.5], attempt=0).traj_id or 0
        shorter = play(log, [0.5, 0.0], attempt=1, stop_reason="horizon", score=0.5).traj_id or 0
        other = play(log, [0.0, 0.0], attempt=2, stop_reason="horizon", score=0.0, text="other").traj_id or 0
    output = call(tmp_path, str(shorter)).output
    assert "After turn 1 no reward was earned." in output
    assert "score 1.000, has the same turns and then continues." in output
    assert "**" not in output
    assert f"userrl show {best} " in output
    output = call(tmp_path, str(other)).output
    assert "No turn earned a reward." in output
    assert "diverges at turn 1." in output
    assert output.index("Where to look") < output.index("** From this turn on") < output.index("-- turn 1")
    assert "here:              action: other -> " in output
    assert "reward was earned" not in call(tmp_path, str(best)).output


def test_a_failed_conversation_without_a_better_one_is_marked_after_its_last_reward_if_there_is_a_turn(
    tmp_path: Path,
) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        early = play(log, [0.5, 0.0], task="early", stop_reason="horizon", score=0.5).traj_id
        late = play(log, [0.0, 0.5], task="late", stop_reason="horizon", score=0.5).traj_id
    output = call(tmp_path, str(early)).output
    assert output.index("-- turn 1") < output.index("** No reward from this turn on. **") < output.index("-- turn 2")
    assert "**" not in call(tmp_path, str(late)).output


def test_a_score_that_is_not_the_sum_of_the_rewards_stands_beside_that_sum(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        apart = play(log, [0.5, 0.25], stop_reason="horizon", score=0.0).traj_id
        same = play(log, [0.5, 0.25], attempt=1, stop_reason="horizon", score=0.75).traj_id
    assert "score 0.000 (its turns earned +0.750)" in call(tmp_path, str(apart)).output
    assert "its turns earned" not in call(tmp_path, str(same)).output


def test_a_failed_evaluation_is_compared_with_other_policies_on_its_task(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        best = play(log, [1.0], phase="evaluate", policy="longer", group="longer").traj_id or 0
        failed = play(log, [0.0], phase="evaluate", policy="short", group="short", stop_reason="horizon", score=0.0)
        play(log, [1.0], phase="train", policy="model", group="longer")
    output = call(tmp_path, str(failed.traj_id)).output
    assert "the best conversation on this task, by longer, score 1.000" in output
    assert f"userrl show {best}" in output


def test_the_id_of_a_task_is_answered_with_the_query_for_its_conversations(tmp_path: Path) -> None:
    filled(tmp_path)
    refused = call(tmp_path, "wish-3-17")
    assert refused.exit_code == 1
    assert "'wish-3-17' is not a traj_id" in refused.output
    assert "where task_id = 'TASK'" in refused.output
    assert call(tmp_path, "9" * 40).exit_code == 1
