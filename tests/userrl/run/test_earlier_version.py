"""State that earlier versions wrote (commits 553b6d8 and f197b02): read, continued, evaluated.

`tests/data/home_f197b02.tar.gz` is a home with a finished run (seed 3), a run that was killed in its second RL stage (seed 4),
both with the overrides in ``overrides.json``, and a claim (``tiny.yaml``) that was registered and run at one seed. Checkpoints
of the claim's runs were taken out.

`tests/data/run_553b6d8.tar.gz` is a home after ``train(seed=3, until="rl-1", keep_checkpoints=1)`` with the overrides in
its ``overrides.json``: demonstrations, cold start and the first of two RL stages, its turns packed by a compaction.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.archives import unpack
from tests.flows.small import environment, result, start
from tests.places import TESTS
from userrl.run.job import StageJob
from userrl.run.plan import plan_run
from userrl.run.readiness import resolve
from userrl.run.request import TrainRequest
from userrl.run.run import group_hash, identity
from warehouse import open_warehouse

DATA = TESTS / "data"
RUN = "equalized-r2g-s3-4f681f2669"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of 553b6d8 at a new place."""
    return unpacked(DATA / "run_553b6d8.tar.gz", tmp_path)


@pytest.fixture
def newer_home(tmp_path: Path) -> Path:
    """The home of f197b02 at a new place."""
    return unpacked(DATA / "home_f197b02.tar.gz", tmp_path)


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack a home. The paths that its files name become those of the folder."""
    unpack(archive, folder)
    for path in (each for each in folder.rglob("*") if each.suffix in (".json", ".md")):
        path.write_text(path.read_text().replace("@HOME@", str(folder)))
    return folder


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


@pytest.mark.usefixtures("prepared")
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
        assert job.former_key == json.loads((job.folder / "result.json").read_text())["key"]
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


FINISHED, KILLED = "equalized-r2g-s3-8327520a7b", "equalized-r2g-s4-b7dbe69507"


@pytest.mark.usefixtures("prepared")
def test_runs_of_f197b02_are_listed_and_their_turns_are_read(newer_home: Path) -> None:
    rows = {row["run"]: row for row in json.loads(userrl(newer_home, "runs", "list", "--json"))}
    assert {FINISHED, KILLED} <= rows.keys()
    assert (rows[FINISHED]["state"], rows[KILLED]["state"]) == ("completed", "died")
    assert FINISHED in userrl(newer_home, "report", FINISHED)
    with open_warehouse(newer_home / "warehouse") as warehouse:
        turns = dict(warehouse.sql("select run_id, count(*) from turns group by 1").fetchall())
    assert turns[FINISHED] > 0
    assert turns[KILLED] > 0


def test_a_stage_s_job_of_f197b02_has_its_key_and_its_result_holds(newer_home: Path) -> None:
    jobs = [StageJob.read(path) for path in sorted(newer_home.glob(f"runs/{FINISHED}/stages/*/job.json"))]
    assert [job.stage for job in jobs] == ["distill", "evaluate", "rl-1", "rl-2", "sft"]
    for job in jobs:
        assert job.former_key == json.loads((job.folder / "result.json").read_text())["key"]
        assert job.result() is not None


@pytest.mark.usefixtures("prepared")
def test_make_run_answers_a_finished_run_without_a_server(newer_home: Path) -> None:
    overrides = json.loads((newer_home / "overrides.json").read_text())
    asked = [f"overrides={json.dumps(overrides)}", "seed=3", "keep_checkpoints=1", "wandb=off"]
    command = [sys.executable, "-m", "flows.cli.make_run", "--deployment", "train/equalized-r2g", *asked]
    done = subprocess.run(command, env=environment(newer_home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        f"run      {FINISHED} is already finished: every stage is reused, and no server was started\n"
    )
    assert "SFT" in done.stdout
    assert not (newer_home / "logs").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_runs_and_a_claim_of_f197b02_continue(newer_home: Path) -> None:
    results = {path: path.read_bytes() for path in newer_home.glob("runs/*-s[34]-*/stages/*/result.json")}
    overrides = json.loads((newer_home / "overrides.json").read_text())
    for seed, run in ((3, FINISHED), (4, KILLED)):
        report, _ = result(start(newer_home, seed=seed, keep_checkpoints=1, overrides=overrides))
        assert report["run"] == run
    assert {path: path.read_bytes() for path in results} == results, "finished stages were reused"
    with open_warehouse(newer_home / "warehouse") as warehouse:
        before = warehouse.rows("from claim_arms() order by arm, seed")
    said = userrl(newer_home, "reproduce", str(newer_home / "tiny.yaml"), "--seeds", "2", "--json")
    table = json.loads(said)
    assert (table["seeds"], table["exploratory"]) == (2, "")
    with open_warehouse(newer_home / "warehouse") as warehouse:
        after = warehouse.rows("from claim_arms() order by arm, seed")
    assert [row for row in after if row["seed"] == 101] == before


def test_a_run_that_f197b02_named_keeps_its_name_and_a_new_one_gets_the_new_name(
    newer_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USERRL_HOME", str(newer_home))
    overrides = json.loads((newer_home / "overrides.json").read_text())
    recipe = resolve("equalized-r2g", "auto", overrides)
    assert recipe.hash != recipe.former_hash
    for seed, run_id in ((3, FINISHED), (4, KILLED)):
        assert plan_run(TrainRequest(seed=seed, overrides=overrides)).run_id == run_id
    new = plan_run(TrainRequest(seed=5, overrides=overrides)).run_id
    assert new == identity(recipe.identity, seed=5, backend="local", name="", init_from=None)
    assert group_hash(recipe) == recipe.former_hash, "runs of both times are one group"
    assert group_hash(resolve("naive-sum", "auto", overrides)) == resolve("naive-sum", "auto", overrides).hash
