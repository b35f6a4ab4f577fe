"""Stock verl on a CPU trains a stage through two kills, and everything is in the warehouse.

One story, told once per session (verl's processes are forked, see `tests/forked.py`): four steps, the last two
with a longer horizon. A worker is killed after step 2, the driver is killed when it is started again, and the third start goes
on from the last checkpoint. Each test looks at one side of what it left. `test_verl_flow.py` has a cold start and two stages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.userrl_core.training.verl.rig import TwoStages, cluster, make_job, make_model, on_cpu, warehouse_sink
from userrl_core.distill import to_chat
from userrl_core.errors import TrainingError
from userrl_core.policies.scripted import ScriptedPolicy
from userrl_core.processes import RECORD, TAGS, tagged
from userrl_core.rewards import turn_advantages
from userrl_core.rollout import run_episodes
from userrl_core.training.jobs import StageResult
from userrl_core.training.verl.main import READY
from userrl_core.training.verl.rl import run_rl
from warehouse import open_warehouse
from warehouse.write.turn_log import TurnLog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
RUN = "verl-story"


@dataclass
class Story:
    """What happened."""

    root: Path
    model: Path
    result: StageResult
    driver_killed: str
    worker_killed: str
    left_after_kills: list[int]
    steps: list[int] = field(default_factory=list)
    metrics: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with open_warehouse(self.root / "warehouse") as warehouse:
            return warehouse.sql(sql).fetchall()


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory, forked: str) -> Iterator[Story]:
    with pytest.MonkeyPatch.context() as patch:
        on_cpu(patch)
        yield tell(tmp_path_factory.mktemp("verl"), forked)


def tell(root: Path, python: str) -> Story:
    """Play it. python: the trainer's interpreter."""
    demonstrations = asyncio.run(
        run_episodes(TwoStages().pool[:40], ScriptedPolicy(1.0), horizon=6, prompt_style="brief")
    )
    model = make_model(root / "model", [to_chat(t) for t in demonstrations])
    steps: list[int] = []
    metrics: dict[int, Mapping[str, float]] = {}
    left: list[int] = []

    def stage(kill_at: int | None = None) -> StageResult:
        sink = warehouse_sink(root / "warehouse", RUN)
        job = make_job(root / "rl-1", model, last_step=4, sink=sink, cluster=cluster(python=python))

        def progress(step: int, total: int, numbers: Mapping[str, float]) -> None:
            steps.append(step)
            metrics[step] = numbers
            if step == kill_at:
                kill_one(root / "rl-1" / "verl", "ray::AgentLoopWorkerTQ")

        return in_log(root, lambda log, _: run_rl(job, TwoStages(), log, progress))

    with pytest.raises(TrainingError) as worker:
        stage(kill_at=2)
    left.extend(leftovers(root))
    watcher = threading.Thread(target=kill_when_ready, args=(root / "rl-1" / "verl",), daemon=True)
    watcher.start()
    with pytest.raises(TrainingError) as driver:
        stage()
    watcher.join()
    left.extend(leftovers(root))
    return Story(root, model, stage(), str(driver.value), str(worker.value), left, steps, metrics)


def in_log(root: Path, work: Callable[[Any, Any], StageResult]) -> StageResult:
    """Work as one incarnation of the run."""
    fields = {"shaping": "r2g", "score": "r2g", "form": "paper", "gamma": 0.8}
    with TurnLog.open(root / "warehouse", RUN, run_fields=fields) as log:
        return work(log, None)


def kill_one(folder: Path, whom: str) -> None:
    """SIGKILL the process of this stage whose command line names it."""
    token = json.loads((folder / RECORD).read_text())["token"]
    victims = []
    for process in tagged(token):
        with contextlib.suppress(psutil.Error):  # Ray's idle workers come and go
            if whom in " ".join(process.cmdline()):
                victims.append(process)
    assert victims, f"no process {whom} to kill"
    victims[0].kill()


def kill_when_ready(folder: Path) -> None:
    """SIGKILL the driver of the start that begins now, once it has told that the plugin is there."""
    output = folder / "output.txt"
    began = output.stat().st_size
    while READY.encode() not in output.read_bytes()[began:]:
        time.sleep(0.1)
    kill_one(folder, "userrl_core.training.verl.main")


def leftovers(root: Path) -> list[int]:
    """Processes of any stage of this story that still live: they carry a token, and where its numbers go."""
    found = []
    for process in psutil.process_iter():
        try:
            around = process.environ()
            ours = TAGS in around and around.get("VERL_FILE_LOGGER_PATH", "").startswith(str(root))
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def test_every_step_was_trained_and_left_its_checkpoint(story: Story) -> None:
    assert set(story.steps) == {1, 2, 3, 4}
    assert story.result.step == 4
    assert list(story.result.checkpoint.glob("*.safetensors"))
    known = story.rows("SELECT stage, step, count(DISTINCT sha256) FROM checkpoints GROUP BY ALL ORDER BY step")
    assert known == [("rl-1", step, 1) for step in (1, 2, 3, 4)]
    assert story.rows("SELECT count(DISTINCT sha256) FROM checkpoints") == [(4,)]


def test_the_horizon_is_four_for_two_steps_and_six_for_two(story: Story) -> None:
    found = story.rows("SELECT DISTINCT step, horizon FROM trajectories WHERE phase = 'train' ORDER BY step")
    assert found == [(1, 4), (2, 4), (3, 6), (4, 6)]
    longest = dict(story.rows("SELECT step, max(turn) FROM turns WHERE phase = 'train' GROUP BY step"))
    assert all(longest[step] <= horizon for step, horizon in found)


def test_every_turn_is_in_the_warehouse_once(story: Story) -> None:
    doubled = story.rows(
        "SELECT run_id, phase, step, gym, task_id, attempt, turn, count(*) FROM turns GROUP BY ALL HAVING count(*) > 1"
    )
    assert doubled == []
    attempts = story.rows(
        "SELECT step, count(*), count(DISTINCT attempt), count(DISTINCT gym) FROM trajectories "
        "WHERE phase = 'train' GROUP BY step ORDER BY step"
    )
    assert attempts == [(step, 8, 4, 2) for step in (1, 2, 3, 4)]
    missing = story.rows(
        "SELECT count(*) FROM trajectories t WHERE t.turns <> (SELECT count(*) FROM turns u WHERE u.traj_id = t.traj_id)"
    )
    assert missing == [(0,)]


def test_travel_and_math_were_trained_on_in_one_batch(story: Story) -> None:
    found = story.rows("SELECT DISTINCT gym FROM trajectories WHERE phase = 'train' AND step = 1 ORDER BY gym")
    assert found == [("math",), ("travel",)]


def test_validation_played_the_final_horizon_and_chose_a_checkpoint(story: Story) -> None:
    found = story.rows("SELECT DISTINCT step, horizon FROM trajectories WHERE phase = 'validate' ORDER BY step")
    assert found == [(0, 6), (2, 6), (4, 6)]
    scores = dict(story.rows("SELECT step, avg(score) FROM trajectories WHERE phase = 'validate' GROUP BY step"))
    assert story.metrics[4]["validate/score/mean"] == pytest.approx(scores[4])
    assert story.result.best is not None
    assert story.result.best.score == pytest.approx(max(scores[2], scores[4]))


def test_advantages_recomputed_from_the_warehouse_are_those_that_verl_used(story: Story) -> None:
    """Relative tolerance 1e-5: verl keeps rewards and advantages in float32."""
    rows = story.rows(
        "SELECT step, group_id, traj_id, list(reward ORDER BY turn), list(completion_tokens ORDER BY turn), "
        "list(advantage ORDER BY turn) FROM turns WHERE phase = 'train' GROUP BY ALL ORDER BY step, traj_id"
    )
    assert len(rows) == 32
    found = turn_advantages(
        [row[3] for row in rows],
        [(row[0], row[1]) for row in rows],
        turn_tokens=[row[4] for row in rows],
        shaping="r2g",
        score="r2g",
        form="paper",
    )
    for row, mine in zip(rows, found, strict=True):
        assert mine == pytest.approx(row[5], rel=1e-5, abs=1e-6)
    assert any(value != 0.0 for row in found for value in row)
    for step in (1, 2, 3, 4):
        of_step = [(row, mine) for row, mine in zip(rows, found, strict=True) if row[0] == step]
        values = [value for _, mine in of_step for value in mine]
        assert story.metrics[step]["verl/critic/advantages/max"] == pytest.approx(max(values), rel=1e-5, abs=1e-6)
        assert story.metrics[step]["verl/critic/advantages/min"] == pytest.approx(min(values), rel=1e-5, abs=1e-6)
        tokens = sum(sum(row[4]) for row, _ in of_step)
        total = sum(a * n for row, mine in of_step for a, n in zip(mine, row[4], strict=True))
        assert story.metrics[step]["verl/critic/advantages/mean"] == pytest.approx(total / tokens, rel=1e-4, abs=1e-6)
        returns = sum(sum(row[3]) for row, _ in of_step) / len(of_step)
        assert story.metrics[step]["rollout/return_sum/mean"] == pytest.approx(returns, rel=1e-5)


def test_sampled_tokens_are_logged_as_verl_trained_on_them(story: Story) -> None:
    rows = story.rows("SELECT token_ids, logprobs, completion_tokens FROM turns WHERE phase = 'train'")
    assert all(len(ids) == len(logprobs) == count for ids, logprobs, count in rows)


def test_a_killed_driver_is_a_failed_stage_with_its_last_lines(story: Story) -> None:
    assert "killed by signal 9" in story.driver_killed
    assert "output.txt" in story.driver_killed


def test_after_kills_a_stage_goes_on_from_its_last_checkpoint(story: Story) -> None:
    resumed = [
        line for line in (story.root / "rl-1" / "verl" / "overrides.txt").read_text().splitlines() if "resume" in line
    ]
    assert any("rl-1/verl/checkpoints/global_step_2" in line for line in resumed)
    assert story.steps == [1, 2, 3, 4]
    rewinds = story.rows("SELECT DISTINCT stage, step FROM events WHERE kind = 'rewind'")
    assert rewinds == [("rl-1", 2)]


def test_a_killed_worker_is_a_failed_stage_with_its_last_lines(story: Story) -> None:
    assert "output.txt" in story.worker_killed
    assert "last lines" in story.worker_killed


def test_no_ray_process_outlives_its_stage(story: Story) -> None:
    assert story.left_after_kills == []
    assert leftovers(story.root) == []


def test_a_finished_stage_started_again_only_reports_its_result(story: Story) -> None:
    job = make_job(story.root / "rl-1", story.model, last_step=4)
    again = in_log(story.root, lambda log, _: run_rl(job, TwoStages(), log))
    assert (again.id, again.sha256, again.step, again.best) == (
        story.result.id,
        story.result.sha256,
        4,
        story.result.best,
    )
