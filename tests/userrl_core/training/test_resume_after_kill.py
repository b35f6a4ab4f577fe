"""A run that is killed in every step ends where the uninterrupted one does, token for token and weight for weight."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tests.userrl_core.training.toys import sft_job
from userrl_core.training.config import SftConfig
from userrl_core.training.local.sft import train_sft

PROGRAM = "tests.userrl_core.training.killable_run"


def visible(log: Path) -> list[dict[str, Any]]:
    """The log as a reader sees it: a rewind hides the rows after its step."""
    rows: list[dict[str, Any]] = []
    for line in log.read_text().splitlines():
        row = json.loads(line)
        if "rewind" in row:
            rows = [earlier for earlier in rows if earlier["step"] <= row["rewind"]]
        else:
            rows.append(row)
    return rows


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_run_killed_in_every_step_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    start = train_sft(sft_job(tmp_path, sft=SftConfig(steps=60, lr=5e-3, batch=16))).checkpoint
    command = [sys.executable, "-m", PROGRAM, str(tmp_path), str(start)]
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=1200, text=True)
    assert [int(line) for line in process.stdout.split()] == [0, *[-signal.SIGKILL] * 12, 0]

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert visible(killed / "log.jsonl") == visible(whole / "log.jsonl")
    played = {(row["step"], row["horizon"]) for row in visible(killed / "log.jsonl") if row["phase"] == "train"}
    assert played == {(step, 4 + (step > 4) + (step > 8)) for step in range(1, 13)}
    ends = [json.loads((folder / "result.json").read_text()) for folder in (whole, killed)]
    assert ends[0]["sha256"] == ends[1]["sha256"]
    assert ends[0]["best"]["step"] == ends[1]["best"]["step"]
    for number, last in enumerate((4, 8, 12), 1):
        files = [
            json.loads((f / f"rl-{number}" / "checkpoints" / f"step-{last:06d}" / "state.json").read_text())["files"]
            for f in (whole, killed)
        ]
        assert files[0] == files[1], "optimiser, generators, curriculum and history included"
