"""The scripts of ``examples/``, run as their first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.small import environment
from tests.mock_server import Answer, Body, MockServer, tool_call
from tests.places import ROOT
from tests.warehouse.makers import play
from warehouse import TurnLog

EXAMPLES = ROOT / "examples"


def run(script: str, *words: str, home: Path) -> str:
    command = [sys.executable, str(EXAMPLES / script), *words]
    done = subprocess.run(command, env=environment(home), capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_a_run_is_asked_in_sql_and_in_polars(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path / "warehouse", "asked") as log:
        play(log, [0.0, 0.75], phase="evaluate")
        play(log, [0.25], phase="evaluate", task="t2")
    said = run("ask_a_run.py", "asked", home=tmp_path)
    assert "success" in said
    assert "0.125" in said, "the mean reward of first turns"
    assert "0.75" in said, "and of second ones"


@pytest.mark.slow
def test_a_served_model_is_evaluated(tmp_path: Path) -> None:
    def asker(body: Body) -> Answer:
        return Answer("", [tool_call("action", "Is it alive?", len(body["messages"]))], "tool_calls")

    with MockServer(asker) as server:
        said = run("served_model.py", "served-1", server.base_url, "telepathy", home=tmp_path)
    assert "telepathy" in said


@pytest.mark.slow
@pytest.mark.full  # tests/sweeps/test_sweep_survival.py runs a sweep of four trials and its confirmation
def test_two_gammas_are_swept_and_the_winner_is_confirmed(tmp_path: Path) -> None:
    said = run("two_gammas.py", "2", home=tmp_path)
    assert said.splitlines()[-1].startswith("2 trials; ")


@pytest.mark.slow
def test_the_library_trains_compares_asks_and_draws_without_a_server(tmp_path: Path) -> None:
    said = run("api.py", str(tmp_path), home=tmp_path / "home")
    assert "equalized-r2g-s0-" in said
    assert "naive-sum-s0-" in said
    assert (tmp_path / "curve.png").stat().st_size > 1000
    assert not (tmp_path / "home" / "prefect").exists(), "no Prefect server was started"
    assert len((EXAMPLES / "api.py").read_text().splitlines()) < 40
