"""``userrl audit user``: the command and the library function over stored conversations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import userrl
from analysis.users.audit import UserAudit
from analysis.users.findings import Audited, Finding
from flows.cli.measuring.audit import user
from tests.makers import raises
from tests.userrl.evaluation.demonstrated import demonstrated
from userrl.reports.document import Code, Document, Text
from userrl.reports.users.audited import AuditedUsers, as_rows, audited_row, audited_users
from userrl.reports.users.document import users_blocks, users_json
from userrl.reports.users.users_section import users_of
from warehouse import TurnLog, open_warehouse


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with an evaluation of the demonstrator on four tasks of two gyms, and the run's id."""
    home = tmp_path_factory.mktemp("home")
    return home, demonstrated(home, ["tau", "function"], tasks=4)


def test_the_audit_of_a_run_names_scores_verdicts_and_what_it_cannot_see(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    user(run)
    text = capsys.readouterr().out
    assert "score without user errors" in text
    assert "untold (possible)" in text
    assert "Words were read by patterns" in text
    assert "Typical: " in text
    assert "Training keeps all conversations" in text
    audited = userrl.audit_user(run)
    report = json.loads(json.dumps(audited.as_json()))
    assert (report["conversations"], report["unknown"]) == (8, 4)
    assert report["score"]["low"] <= report["score"]["estimate"] <= report["score"]["high"]
    assert sum(report["verdicts"].values()) == sum(row["verdict"] is not None for row in report["by_conversation"])
    assert report["user_errors"]["untold"]["possible"] is True
    assert report["words_read_by"] == "patterns"
    assert set(audited.to_polars().columns) >= {"conversation", "side", "kind", "turn"}


def test_an_audit_is_stored_once_and_read_back_as_it_was(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    first = userrl.audit_user(run)
    again = userrl.audit_user(run)
    assert (again.written, again.not_stored) == (0, "")
    with open_warehouse(home / "warehouse") as warehouse:
        assert warehouse.rows("SELECT count(*) AS n, max(incarnation) AS i FROM user_features_all") == [
            {"n": 8, "i": 1}
        ]
        [stored] = audited_users(warehouse, run)
        said = warehouse.rows("SELECT gym, count(words_per_turn) AS n, count(user_error) AS e FROM user_features "
                              "JOIN trajectories USING (traj_id) GROUP BY ALL ORDER BY gym")  # fmt: skip
        report = warehouse.query("user_report", run=run).pl().to_dicts()
    assert stored == first.users
    assert users_json(stored) == users_json(first.users)
    assert said == [{"gym": "function", "n": 0, "e": 0}, {"gym": "tau", "n": 4, "e": 4}]
    assert [(row["gym"], row["conversations"], row["tasks"]) for row in report] == [("function", 4, 4), ("tau", 4, 4)]
    assert report[0]["words_per_turn"] is None
    assert report[0]["score_without_user_errors"] is None
    mean = first.users.fingerprint()["tau"]["words_per_turn"].estimate
    assert report[1]["words_per_turn"] == pytest.approx(mean)
    assert report[1]["score"] == 1.0


def test_an_audit_that_was_killed_half_way_is_completed_by_the_next(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home, run = shutil.copytree(evaluated[0], tmp_path / "home"), evaluated[1]
    shutil.rmtree(home / "warehouse" / "runs" / f"run={run}" / "user_features", ignore_errors=True)
    monkeypatch.setenv("USERRL_HOME", str(home))
    for path in (home / "warehouse").rglob("*user_features*"):
        path.unlink()
    whole = TurnLog.user_features

    def killed(log: TurnLog, rows: Iterable[Mapping[str, Any]]) -> None:
        whole(log, list(rows)[:3])
        raise KeyboardInterrupt

    monkeypatch.setattr(TurnLog, "user_features", killed)
    with pytest.raises(KeyboardInterrupt):
        userrl.audit_user(run)
    monkeypatch.setattr(TurnLog, "user_features", whole)
    with open_warehouse(home / "warehouse") as warehouse:
        assert audited_users(warehouse, run)[0].later == 5
    assert userrl.audit_user(run).written == 5
    assert userrl.audit_user(run).written == 0


def test_a_report_has_the_audit_and_without_one_the_command(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    userrl.audit_user(run)
    with open_warehouse(home / "warehouse") as warehouse:
        text = Document("", tuple(users_of(warehouse, run))).markdown()
        [sentence] = users_of(warehouse, "another")
    assert "score without user errors" in text
    assert "words per turn" in text
    assert text.count("Typical: ") == 3
    assert sentence == Text(("The users of this run were not audited: ", Code("userrl audit user another"), "."))


def test_a_phase_without_conversations_is_refused(evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    with raises("run.no_conversations", "distill"):
        userrl.audit_user(run, phase="distill")


def test_the_encoder_is_refused_where_it_was_not_fetched(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    with raises("model.not_fetched", "userrl model fetch"):
        userrl.audit_user(run, acts="encoder")


def test_a_stored_audit_keeps_who_read_the_words_and_one_of_patterns_is_as_it_was() -> None:
    by_patterns = Audited("1", "tau/a", "tau", 1.0, True, True, 0, {"coached": []}, [], None)
    for row in (by_patterns, replace(by_patterns, reader="encoder")):
        [stored] = as_rows(AuditedUsers("run", "evaluate", UserAudit.of([row]), {}, {}, {}))
        read = audited_row({**stored, "gym": "tau", "task_id": "a", "score": 1.0, "stop_reason": "success",
                            "policy": "", "user_name": ""})  # fmt: skip
        assert read == row
    assert json.loads(stored["user_errors"]) == {"coached": [], "read by": "encoder"}


def test_an_error_of_the_audit_is_named_with_its_material_and_is_not_for_games() -> None:
    desk = Audited("1", "tau/a", "tau", 1.0, True, True, 0, {"coached": [], "ungrounded": []}, [], None)
    game = Audited(
        "2", "wish/a", "wish", 1.0, True, True, 0, {"ungrounded": [Finding("ungrounded", 1, "red")]}, [], None
    )
    alone, mixed = (AuditedUsers("run", "evaluate", UserAudit.of(rows), {}, {}, {}) for rows in ((game,), (desk, game)))
    assert users_json(alone)["user_errors"]["ungrounded"]["measured"] is None
    assert users_json(mixed)["user_errors"]["ungrounded"]["measured"] == {
        "hits": (14, 20), "false_alarms": (0, 15), "on": "bike desk", "for": "tau",
    }  # fmt: skip
    lines = Document("", tuple(users_blocks(mixed))).markdown().splitlines()
    [at_the_desk], [in_the_game] = (
        [line for line in lines if f"ungrounded in {gym}" in line] for gym in ("tau", "wish")
    )
    assert "not measured" in in_the_game
    assert "not measured" not in at_the_desk
    assert any("at a bike desk" in line for line in lines)
