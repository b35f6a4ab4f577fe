"""``userrl audit user``: the command and the library function over stored conversations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import userrl
from flows.cli.measuring.audit import user
from tests.flows.demonstrated import demonstrated
from tests.makers import raises


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
    assert "gave in (possible)" in text
    assert "typical: " in text
    assert "training keeps all conversations" in text
    audited = userrl.audit_user(run)
    report = json.loads(json.dumps(audited.as_json()))
    assert (report["conversations"], report["unknown"]) == (8, 4)
    assert report["score"]["low"] <= report["score"]["estimate"] <= report["score"]["high"]
    assert sum(report["verdicts"].values()) == sum(row["verdict"] is not None for row in report["by_conversation"])
    assert report["user_errors"]["gave in"]["possible"] is True
    assert set(audited.to_polars().columns) >= {"conversation", "side", "kind", "turn"}


def test_a_phase_without_conversations_is_refused(evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    with raises("run.no_conversations", "distill"):
        userrl.audit_user(run, phase="distill")
