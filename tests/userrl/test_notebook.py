"""Results as a notebook shows them, and the curve as a data frame."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import userrl
from tests.packages.sharing.test_bundle import HOSTILE, REPORT
from tests.warehouse.makers import play
from userrl.machine.home import warehouse_dir
from userrl.reports.trained_run import TrainedRun
from userrl.stages.train import PlannedRun
from warehouse import TurnLog

TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_curve_has_training_and_validation_and_nothing_else(home: Path) -> None:
    with TurnLog.open(warehouse_dir(), "r1") as log:
        play(log, [0.25], phase="train", score=0.25)
        play(log, [0.5], phase="validate", score=0.5)
        play(log, [1.0], phase="evaluate", score=1.0)
    curve = TrainedRun("r1", home, REPORT).curve()
    assert dict(curve.select("phase", "score").iter_rows()) == {"train": 0.25, "validate": 0.5}


def test_a_report_is_a_table_in_a_notebook_and_its_texts_stay_texts(tmp_path: Path) -> None:
    trained = TrainedRun("r1", tmp_path, REPORT)._repr_markdown_()
    assert trained.startswith("# ")
    assert "owned" in trained
    assert HOSTILE not in trained
    line = {"messages": TALK, "score": 1, "model": "<b>m|x</b>"}
    (tmp_path / "chats.jsonl").write_text(json.dumps(line))
    (imported,) = userrl.import_logs(tmp_path / "chats.jsonl")
    assert "| Agent | Data |" in imported._repr_markdown_()
    assert r"\<b>m" in imported._repr_markdown_()


def test_every_result_of_the_library_that_can_be_printed_is_shown_so(tmp_path: Path) -> None:
    shown = PlannedRun("r1", "a ``` fence")._repr_markdown_()
    assert shown == "````\na ``` fence\n````"
    for file in Path(userrl.__file__).parent.rglob("*.py"):
        for text in re.split(r"^(?=class )", file.read_text(), flags=re.MULTILINE)[1:]:
            if "def frame_rows(" in text and "def __str__(" in text:
                assert "(Printed, Tabular)" in text.partition("\n")[0] or "def _repr_markdown_(" in text, text[:60]
