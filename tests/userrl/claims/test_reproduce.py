"""A claim at two seeds and 30,000 tokens, killed half-way with all that it had started, and resumed: what was there stays."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.flows.small import environment
from tests.userrl.claims.test_claims import TINY, written
from tests.waits import runs
from userrl.machine.slots import slots, take
from userrl_core.json_files import GrowingLines
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LEARNS = {**TINY["overrides"], "gyms.errand.tasks.depths": [1], "cold_start.steps": 150}
"""Tasks of which some are solved, so that runs have scores of their own."""


@pytest.fixture
def begun() -> Iterator[list[subprocess.Popen[str]]]:
    """Flows that the test started: none outlives it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        kill(process)


def begin(home: Path, claim: Path, *, apart: bool = False) -> subprocess.Popen[str]:
    home.mkdir(parents=True, exist_ok=True)
    options = ["--seeds", "2", "--parallel", "1", "--json"]
    command = [sys.executable, "-m", "flows.cli.main", "reproduce", str(claim), *options]
    return subprocess.Popen(
        command,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=apart,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the flow and to everything below it."""
    if process.poll() is not None:
        return
    below = psutil.Process(process.pid).children(recursive=True)
    for each in (psutil.Process(process.pid), *below):
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(below, timeout=120)
    process.communicate(timeout=120)


def wait_for(found: Callable[[], bool], flow: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 400
    while not found():
        assert flow.poll() is None, flow.communicate()[0][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def arms(home: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """What the warehouse has of every arm and seed that is over."""
    with open_warehouse(home / "warehouse") as warehouse:
        rows = warehouse.rows("from claim_arms() where state = 'ended'")
    return {(row["arm"], row["seed"]): row for row in rows}


def test_a_claim_killed_half_way_and_resumed_gives_the_same_table(
    tmp_path: Path, begun: list[subprocess.Popen[str]]
) -> None:
    claim, home = written(tmp_path, overrides=LEARNS, tokens=30_000), tmp_path / "home"

    def training() -> bool:
        """Whether a run of the second seed has taken its first step."""
        return any(list(GrowingLines(path)) for path in home.glob("runs/*-s102-*/stages/rl-1/progress.jsonl"))

    begun.append(begin(home, claim))
    wait_for(training, begun[-1])
    kill(begun[-1])
    before = arms(home)
    reports = {path: path.stat().st_mtime_ns for path in home.glob("runs/*/report.json")}
    assert before.keys() <= {("r2g", 101), ("mean", 101)}
    assert 1 <= len(reports) <= 2  # half-way

    begun.append(begin(home, claim))
    said, _ = begun[-1].communicate(timeout=600)
    assert begun[-1].returncode == 0, said[-3000:]
    table: dict[str, Any] = json.JSONDecoder().raw_decode(said[said.index("\n{\n") + 1 :])[0]

    after = arms(home)
    assert {place: after[place] for place in before} == before
    assert {path: path.stat().st_mtime_ns for path in reports} == reports  # nothing that was over was done again
    assert len(list(home.glob("runs/*/report.json"))) == 4
    assert table["values"] == {
        str(seed): {arm: after[arm, seed]["score"] for arm in ("r2g", "mean")} for seed in (101, 102)
    }
    # Paired: the arms of a seed begin with the same weights, seeds with others; the run that was cut off too.
    cold = {place: row["cold_start"] for place, row in after.items()}
    assert cold["r2g", 101] == cold["mean", 101] != cold["r2g", 102] == cold["mean", 102]
    assert (table["verdict"], table["exploratory"]) == ("undecided (2 of 8 seeds)", "")
    assert {name: (arm["seeds"], arm["crashed"], arm["exploratory"]) for name, arm in table["arms"].items()} == {
        "r2g": (2, 0, ""),
        "mean": (2, 0, ""),
    }


def test_a_term_to_the_whole_group_ends_it_in_order_and_leaves_no_process(
    tmp_path: Path, begun: list[subprocess.Popen[str]]
) -> None:
    claim, home = written(tmp_path, overrides=LEARNS, tokens=30_000), tmp_path / "home"
    begun.append(begin(home, claim, apart=True))
    wait_for(lambda: any(home.glob("runs/*/stages/sft/progress.jsonl")), begun[-1])
    below = psutil.Process(begun[-1].pid).children(recursive=True)
    assert not any(runs(each, "uvicorn") for each in below)  # runs of a claim need no Prefect server
    os.killpg(begun[-1].pid, signal.SIGTERM)  # as `timeout` does, and a terminal's Ctrl-C
    said, _ = begun[-1].communicate(timeout=60)
    assert begun[-1].returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    assert psutil.wait_procs(below, timeout=60)[1] == []


def test_a_run_that_waits_for_a_slot_is_announced(
    tmp_path: Path, begun: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, home = written(tmp_path, overrides=LEARNS, tokens=30_000), tmp_path / "home"
    monkeypatch.setenv("USERRL_SLOTS", "cpu-0")
    with take(home / "slots", 1, slots()):
        begun.append(begin(home, claim))
        assert begun[-1].stdout is not None
        assert any("waits for a training slot" in line for line in begun[-1].stdout)
