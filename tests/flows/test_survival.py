"""kill -9 of a flow in the middle of stage 2: nothing is lost, nothing is counted twice, the weights come out the same."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.flows.small import OVERRIDES, result, start
from tests.waits import wait_for
from userrl_core.json_files import GrowingLines
from userrl_core.processes import tagged
from warehouse import open_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000), pytest.mark.usefixtures("prepared_module")]


def stage_folder(home: Path, stage: str) -> Path:
    (run,) = (home / "runs").iterdir()
    return run / "stages" / stage


def killed_in(run, home, stage, *, step, with_stage=False):
    """Kill a run with -9 once its stage has written this step, and return the tag of the stage's process.

    with_stage: kill the stage with -9 as well, which otherwise gets TERM and may finish what it does.
    """
    wait_for(lambda: (home / "runs").is_dir() and any((home / "runs").iterdir()))
    progress = stage_folder(home, stage) / "progress.jsonl"
    wait_for(lambda: any(line["step"] >= step for line in lines(progress)))
    token = json.loads((stage_folder(home, stage) / "child.json").read_text())["token"]
    if with_stage:
        run.send_signal(signal.SIGSTOP)  # or it would start the stage again
        stage_processes = tagged(token)
        assert stage_processes
        for process in stage_processes:
            process.kill()
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    return token


def lines(path: Path) -> list[dict]:
    return list(GrowingLines(path))


def weights(home: Path, stage: str) -> str:
    return json.loads((stage_folder(home, stage) / "result.json").read_text())["value"]["sha256"]


def begun(home: Path, **how: bool):
    """A run whose second stage is long enough to be killed in the middle by a test that is not always awake."""
    stages = [OVERRIDES["stages"][0], {**OVERRIDES["stages"][1], "steps": 26}]
    return start(home, overrides={**OVERRIDES, "stages": stages}, **how)


def ask(home: Path, text: str):
    with open_warehouse(home / "warehouse") as warehouse:
        return warehouse.sql(text).fetchall()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    home = tmp_path_factory.mktemp("whole")
    result(begun(home))
    return home


def test_a_flow_killed_in_stage_two_goes_on_to_the_same_weights(uninterrupted, tmp_path):
    whole = uninterrupted
    home = tmp_path / "killed"
    flow = begun(home, flow=True)
    wait_for(lambda: (home / "runs").is_dir() and any((home / "runs").iterdir()))
    progress = stage_folder(home, "rl-2") / "progress.jsonl"
    wait_for(lambda: any(line["step"] >= 7 for line in lines(progress)))
    token = json.loads((stage_folder(home, "rl-2") / "child.json").read_text())["token"]
    first_stage = (stage_folder(home, "rl-1") / "result.json").stat().st_mtime_ns
    os.kill(flow.pid, signal.SIGKILL)
    flow.wait()
    assert not (stage_folder(home, "rl-2") / "result.json").exists()

    _, said = result(begun(home, flow=True))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(flow.pid, signal.SIGKILL)  # the killed flow's temporary Prefect server, which only Prefect could end

    assert tagged(token) == []
    assert "rl-1: reused" in said
    assert (stage_folder(home, "rl-1") / "result.json").stat().st_mtime_ns == first_stage
    again = [line["step"] for line in lines(progress)]
    assert again[-1] == 30
    assert min(again[again.index(7) + 1 :]) >= 7  # not from the stage's beginning, which is step 5
    for stage in ("rl-1", "rl-2"):
        assert weights(home, stage) == weights(whole, stage)
    counted = "select phase, step, count(*) from turns group by all order by all"
    assert ask(home, counted) == ask(whole, counted)
    assert ask(home, "select count(*) from (select 1 from turns group by traj_id, turn having count(*) > 1)") == [(0,)]
    same = "select stage, step, task_id, attempt, turn, token_ids, reward from turns where phase = 'train' order by all"
    assert ask(home, same) == ask(whole, same)


def test_a_damaged_checkpoint_is_not_reused(uninterrupted):
    home = uninterrupted
    expected = weights(home, "rl-2")
    checkpoint = Path(json.loads((stage_folder(home, "rl-2") / "result.json").read_text())["value"]["checkpoint"])
    (checkpoint / "model.safetensors").write_bytes(b"damaged")
    _, said = result(begun(home))
    assert "rl-1: reused" in said
    assert "rl-2: finished earlier, but its files are gone or changed; done again" in said
    assert weights(home, "rl-2") == expected


def test_demonstrations_that_are_played_again_leave_what_was_trained_on_them(uninterrupted):
    (stage_folder(uninterrupted, "distill") / "chats.jsonl").unlink()
    _, said = result(begun(uninterrupted))
    assert "distill: finished earlier, but its files are gone or changed; done again" in said
    for stage in ("sft", "rl-1", "rl-2", "evaluate"):
        assert f"{stage}: reused" in said


def test_a_task_curriculum_killed_in_an_rl_step_goes_on_to_the_same_tasks_and_weights(tmp_path):
    stages = [{**OVERRIDES["stages"][0], "steps": 20}]
    overrides = {**OVERRIDES, "curriculum": {"kind": "thompson"}, "stages": stages}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    result(start(whole, overrides=overrides))
    run = start(killed, overrides=overrides)
    killed_in(run, killed, "rl-1", step=5, with_stage=True)
    assert not (stage_folder(killed, "rl-1") / "result.json").exists()

    result(start(killed, overrides=overrides))

    again = [line["step"] for line in lines(stage_folder(killed, "rl-1") / "progress.jsonl")]
    assert min(again[again.index(5) + 1 :]) > 1, "not from the stage's beginning"
    assert weights(killed, "rl-1") == weights(whole, "rl-1")
    drawn = "select step, task_id, attempt, score from trajectories where phase = 'train' order by all"
    assert ask(killed, drawn) == ask(whole, drawn)
    estimated = "select step, gym, tier, draw_share, success, estimate from curriculum() order by all"
    assert ask(killed, estimated) == ask(whole, estimated)
    assert ask(whole, "select count(estimate) = count(*) from curriculum()") == [(True,)]
