"""State that an earlier version wrote (commit 553b6d8): read, continued, evaluated.

`tests/data/run_553b6d8.tar.gz` is a home after ``train(seed=3, until="rl-1", keep_checkpoints=1)`` with the overrides in
its ``overrides.json``: demonstrations, cold start and the first of two RL stages, its turns packed by a compaction.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from flows.run.job import StageJob
from tests.flows.small import environment, result, start
from warehouse import open_warehouse

ARCHIVE = Path(__file__).parents[1] / "data" / "run_553b6d8.tar.gz"
RUN = "equalized-r2g-s3-4f681f2669"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The old home at a new place: it may be moved, so the paths that its files name are those of the place."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    for path in (tmp_path / "runs").rglob("*.json"):
        path.write_text(path.read_text().replace("@HOME@", str(tmp_path)))
    return tmp_path


def userrl(home: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *words],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_earlier_run_is_listed_reported_and_its_turns_are_read(home: Path) -> None:
    assert [row["run"] for row in json.loads(userrl(home, "runs", "list", "--json"))] == [RUN]
    assert RUN in userrl(home, "report", "latest")
    with open_warehouse(home / "warehouse") as warehouse:
        assert warehouse.sql("select run_id, count(*) from turns group by 1").fetchall() == [(RUN, 370)]
        assert warehouse.query("learning_curve", run="latest").fetchall()


def test_an_earlier_stage_s_job_is_read_has_its_key_and_its_result_holds(home: Path) -> None:
    jobs = [StageJob.read(path) for path in sorted(home.glob("runs/*/stages/*/job.json"))]
    assert [job.stage for job in jobs] == ["distill", "rl-1", "sft"]
    for job in jobs:
        assert job.key == json.loads((job.folder / "result.json").read_text())["key"]
        result = job.result()
        assert result is not None
        assert result.seconds > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_earlier_run_is_continued_and_evaluated(home: Path) -> None:
    # By the recipe that the run holds: profile laptop has other tasks since, so that the same words would name another run.
    before = json.loads((home / "runs" / RUN / "stages" / "rl-1" / "result.json").read_text())
    held = str(home / "runs" / RUN / "run.json")
    report, _ = result(start(home, recipe=held, seed=3, keep_checkpoints=1, overrides={}))
    assert report["run"] == RUN
    assert set(report["table"]) >= {"demonstrator", "SFT", "RL"}
    assert json.loads((home / "runs" / RUN / "stages" / "rl-1" / "result.json").read_text()) == before
    with open_warehouse(home / "warehouse") as warehouse:
        stages = dict(warehouse.sql("select stage, count(*) from turns group by 1").fetchall())
        assert sum(n for stage, n in stages.items() if stage in ("distill", "rl-1")) == 370
        assert set(stages) == {"distill", "rl-1", "rl-2", "evaluate"}
    assert "travel" in userrl(home, "evaluate", RUN, "--tasks", "4")
