"""A run with branches: both begin at the same checkpoint, run side by side, survive a kill, and are reported apart."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.flows.small import result, start
from tests.waits import runs
from userrl.run.results import RESULTS, TrainResult
from userrl_core.json_files import read_json
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("prepared_module")]

SMALL: dict[str, Any] = {
    "demonstrations.episodes": 200,
    "demonstrations.top_k": 150,
    "cold_start.steps": 60,
    "algorithm.batch": 4,
    "algorithm.group": 4,
    "algorithm.batch_tokens": 600,
    "evaluate.every": 4,
    "evaluate.tasks": 15,
    "evaluate.validation_tasks": 12,
    "stages": [{"tokens": 2400, "horizon": 6, "mix": {"errand": 1, "wish": 1}, "weigh": "tokens"}],
    "branches": {
        "short": [{"tokens": 4800, "horizon": 6, "mix": {"errand": 1, "wish": 1}, "weigh": "tokens"}],
        "longer": [
            {"tokens": 2400, "horizon": 10, "mix": {"errand": 1, "wish": 1}, "weigh": "tokens"},
            {"tokens": 2400, "horizon": 16, "mix": {"errand": 1, "wish": 1}, "weigh": "tokens"},
        ],
    },
}
STAGES = ("rl-1", "rl-2-short", "rl-3-longer", "rl-4-longer")


def fork(home: Path) -> Any:
    return start(home, recipe="horizon-fork", profile="laptop", overrides=SMALL)


def trained(run: Path) -> dict[str, TrainResult]:
    found = {stage: read_json(run / "stages" / stage / "result.json") for stage in STAGES}
    return {stage: RESULTS["rl"].model_validate(value["value"]) for stage, value in found.items() if value}  # type: ignore[misc]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    home = tmp_path_factory.mktemp("fork")
    report, _ = result(fork(home))
    return home, report


def test_branches_go_on_from_the_same_checkpoint_with_horizons_of_their_own(finished: tuple[Path, Any]) -> None:
    home, report = finished
    with open_warehouse(home / "warehouse") as warehouse:
        rows = warehouse.sql(
            "select stage, min(step), max(step), min(horizon), max(horizon) from trajectories where phase = 'train' "
            "group by stage order by stage"
        ).fetchall()
        parents = dict(warehouse.sql("select stage, arg_min(parent, step) from checkpoints group by stage").fetchall())
    assert rows == [
        ("rl-1", 1, 4, 6, 6), ("rl-2-short", 5, 12, 6, 6), ("rl-3-longer", 5, 8, 10, 10), ("rl-4-longer", 9, 12, 16, 16),
    ]  # fmt: skip
    end = trained(Path(report["folder"]))["rl-1"].id
    assert parents["rl-2-short"] == parents["rl-3-longer"] == end
    jobs = [json.loads((Path(report["folder"]) / "stages" / stage / "job.json").read_text()) for stage in STAGES[1:3]]
    assert jobs[0]["inputs"]["before"] == jobs[1]["inputs"]["before"]


def test_the_report_has_best_and_last_of_each_branch_and_scores_by_tier(finished: tuple[Path, Any]) -> None:
    _, report = finished
    assert {"demonstrator", "SFT", "short", "longer"} <= set(report["table"])
    assert set(report["branches"]) == {"short", "longer"}
    for best, last in report["branches"].values():
        assert (last["step"], best["step"] <= 12) == (12, True)
        assert last["score"] is not None
    assert {"errand depth-1", "errand depth-3", "wish size-4"} <= set(report["tiers"]["longer"])
    page = (Path(report["folder"]) / "report.md").read_text()
    assert "One seed shows how these runs differ, not the schedules." in page


def test_a_branch_killed_in_its_middle_is_resumed_to_the_weights_of_an_uninterrupted_run(
    finished: tuple[Path, Any], tmp_path: Path
) -> None:
    _, report = finished
    process = fork(tmp_path)
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob("runs/*/stages/rl-3-longer/checkpoints/step-*")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.1)
    for child in psutil.Process(process.pid).children(recursive=True):
        if runs(child, "rl-3-longer"):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGKILL)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    again, _ = result(fork(tmp_path))
    assert again["run"] == report["run"]
    ours, theirs = trained(Path(again["folder"])), trained(Path(report["folder"]))
    assert {stage: found.sha256 for stage, found in ours.items()} == {s: found.sha256 for s, found in theirs.items()}
    question = "select stage, step, count(*), sum(reward) from turns where phase = 'train' group by all order by all"
    with open_warehouse(tmp_path / "warehouse") as one, open_warehouse(finished[0] / "warehouse") as other:
        assert one.sql(question).fetchall() == other.sql(question).fetchall()


def test_the_same_call_again_reuses_every_stage_of_every_branch_and_says_so(finished: tuple[Path, Any]) -> None:
    home, report = finished
    turns = "select count(*) from turns_all"
    with open_warehouse(home / "warehouse") as warehouse:
        before = warehouse.sql(turns).fetchall()
    again, said = result(fork(home))
    assert again["table"] == report["table"]
    assert all(f"{stage}: reused" in said for stage in ("distill", "sft", *STAGES, "evaluate"))
    with open_warehouse(home / "warehouse") as warehouse:
        assert warehouse.sql(turns).fetchall() == before
