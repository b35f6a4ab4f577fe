"""A home that is moved or copied continues at its new place: nothing is done again, and nothing of the old place is read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import curricula
from tests.archives import unpack
from tests.flows.small import OVERRIDES, result, start
from tests.places import TESTS
from userrl.run.families import other_families
from userrl.run.job import StageJob
from userrl.run.plan import plan_run
from userrl.run.request import TrainRequest
from userrl.run.run import RunDescription, claim
from userrl_core.json_files import write_json

ARCHIVE = TESTS / "data" / "run_553b6d8.tar.gz"
TINY: dict[str, Any] = {
    **OVERRIDES,
    "demonstrations.episodes": 40,
    "demonstrations.top_k": 30,
    "cold_start.steps": 4,
    "evaluate.tasks": 4,
    "evaluate.validation_tasks": 4,
    "stages": [{"steps": 2, "horizon": 4, "mix": {"travel": 1}}],
}


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A home of commit 553b6d8 whose files name another place than it has."""
    unpack(ARCHIVE, tmp_path / "new")
    for path in (tmp_path / "new" / "runs").rglob("*.json"):
        path.write_text(path.read_text().replace("@HOME@", str(tmp_path / "old")))
    return tmp_path / "new"


def test_jobs_and_results_of_a_moved_home_hold_at_its_new_place(moved: Path) -> None:
    for path in moved.glob("runs/*/stages/*/job.json"):
        job = StageJob.read(path)
        done = job.result()
        assert (job.folder, job.warehouse) == (path.parent, moved / "warehouse")
        assert done is not None
        assert all(file.is_relative_to(moved) for file in done.files)
        assert "/old/" not in job.model_dump_json() + done.model_dump_json()


def test_a_copied_home_reads_its_own_files_while_those_of_the_original_are_still_there(moved: Path) -> None:
    shutil.copytree(moved, moved.parent / "old")
    [path] = moved.glob("runs/*/stages/sft/job.json")
    job = StageJob.read(path)
    assert job.result() is not None
    next(iter(job.result().files)).unlink()  # type: ignore[union-attr]
    assert job.result() is None


def test_a_run_that_began_with_a_checkpoint_of_a_moved_home_is_still_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(home: Path) -> Any:
        monkeypatch.setenv("USERRL_HOME", str(home))
        made = home / "runs" / "first" / "stages" / "rl-1" / "step-000003"
        return plan_run(TrainRequest(recipe="equalized-r2g", profile="laptop-quick", init_from=str(made)))

    old, new = tmp_path / "old", tmp_path / "new"
    made = old / "runs" / "first" / "stages" / "rl-1" / "step-000003"
    write_json(made / "config.json", {})
    fork = curricula.load("horizon-fork", "laptop")
    write_json(old / "runs" / "first" / "run.json", {"id": "first", "created": 0.0, "resolved": fork.resolved()})
    before = planned(old)
    second = claim(
        before.run_id,
        RunDescription(init_from=before.init_from, resolved=before.recipe.resolved()),
        fresh=False,
        flow_run=None,
    )
    old.rename(new)
    after = planned(new)
    assert after.run_id == before.run_id == second.id
    assert after.start.sha256 == before.start.sha256 == str(made)  # thus the keys of its stages
    assert after.start.checkpoint == new / made.relative_to(old)
    trained = str(new / "runs" / second.id / "stages" / "rl-1" / "step-000001")
    assert [recipe.evaluation_gyms for recipe in other_families(before.recipe, trained)] == [("errand",), ("wish",)]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("prepared")
def test_a_run_in_a_home_that_was_moved_continues_where_it_was(tmp_path: Path) -> None:
    first, _ = result(start(tmp_path / "old", overrides=TINY, until="sft"))
    (tmp_path / "old").rename(tmp_path / "new")
    kept = [json.loads(path.read_text())["at"] for path in sorted(tmp_path.glob("new/runs/*/stages/*/result.json"))]
    again, said = result(start(tmp_path / "new", overrides=TINY, until="rl-1"))
    assert again["run"] == first["run"]
    assert [said.count(f"{stage}: reused, because it finished earlier") for stage in ("distill", "sft")] == [1, 1]
    assert Path(again["checkpoint"]).is_relative_to(tmp_path / "new")
    results = sorted(tmp_path.glob("new/runs/*/stages/*/result.json"))
    assert [path.parent.name for path in results] == ["distill", "rl-1", "sft"]
    assert [json.loads(path.read_text())["at"] for path in results if path.parent.name != "rl-1"] == kept
    assert not (tmp_path / "old").exists()
