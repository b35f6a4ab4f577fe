from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.makers import raises
from tests.places import ROOT
from tests.warehouse.makers import make_task, make_turn, play
from userrl_core.errors import LogError
from userrl_core.records import CheckpointRecord, Flag, ModelCall, Phase, Task, Trajectory
from warehouse import TurnLog, open_warehouse
from warehouse.files.encode import any_text
from warehouse.files.encode import text as text_of
from warehouse.files.runs import register_run
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact


def test_importing_the_warehouse_loads_nothing_heavy() -> None:
    code = "import sys, warehouse; print({'torch', 'prefect', 'duckdb', 'pyarrow'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


def test_every_field_of_a_turn_and_its_place_come_back(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1", run_fields={"name": "mine", "recipe_json": {"a": 1}, "seed": 3}) as log:
        played = play(log, [0.25, None], calls=1, step=7, task="t9", group="g")
        row = open_warehouse(tmp_path).sql("SELECT * FROM turns WHERE turn = 1").pl().row(0, named=True)
    assert row.pop("logged_at") > 1.7e9
    assert row == {
        "traj_id": played.traj_id,
        "turn": 1,
        "run_id": "r1",
        "incarnation": 1,
        "writer": 1,
        "seq": 1,
        "stage": "rl-1",
        "step": 7,
        "phase": "train",
        "split": "train",
        "gym": "travel",
        "task_id": "t9",
        "attempt": 0,
        "group_id": "g",
        "choice": "action",
        "content": "hello",
        "thought": "thinking",
        "message": "hello 1",
        "observation": "observation 1",
        "reward": 0.25,
        "flags": 0,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "policy_seconds": 0.5,
        "env_seconds": 0.25,
        "token_ids": [1, 2, 1],
        "logprobs": [-0.5, -0.25, -1.0],
        "info": '{"number":1}',
        "shaped": None,
        "advantage": None,
    }


def test_a_trajectory_row_holds_every_score_with_the_runs_gamma(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1", run_fields={"gamma": 0.5}) as log:
        play(log, [0.5, 0.25, 1.0], score=0.75)
    row = open_warehouse(tmp_path).sql("SELECT * FROM trajectories").pl().row(0, named=True)
    assert (row["score"], row["return_sum"], row["score_r2g"]) == (0.75, 1.75, 0.5 + 0.125 + 0.25)
    assert (row["turns"], row["admitted"], row["stop_reason"], row["horizon"]) == (3, True, "success", 8)
    assert row["prompt_tokens"] == 30
    assert row["seed"] == 2**62


def test_a_null_reward_stays_null_and_its_trajectory_has_no_score(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.5, None], score=0.5)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT reward FROM turns ORDER BY turn").fetchall() == [(0.5,), (None,)]
        row = warehouse.sql(
            "SELECT score, return_sum, score_r2g, admitted, reject_reason FROM trajectories"
        ).fetchall()[0]
    assert row == (None, None, None, False, "user_error")


def test_what_was_logged_is_read_at_once_and_again_after_sealing(tmp_path: Path) -> None:
    log = TurnLog.open(tmp_path, "r1")
    warehouse = open_warehouse(tmp_path)
    for step in range(1, 4):
        play(log, [0.0, 1.0], step=step, credits=[1.0, 1.0])
        assert warehouse.sql("SELECT count(*), max(step), count(advantage) FROM turns").fetchall()[0] == (
            2 * step,
            step,
            2 * step,
        )
    log.close()
    assert not list((tmp_path / "runs/run=r1/live").iterdir())
    assert warehouse.sql("SELECT count(*), max(step), sum(advantage) FROM turns").fetchall()[0] == (6, 3, 12.0)


def test_segments_are_sealed_while_the_writer_goes_on(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1", segment_rows=10) as log:
        for _ in range(100):
            play(log, [0.0, 1.0, 0.5])
        with open_warehouse(tmp_path) as warehouse:
            assert warehouse.sql("SELECT count(*), count(DISTINCT (traj_id, turn)) FROM turns").fetchall()[0] == (
                300,
                300,
            )
    assert len(list((tmp_path / "runs/run=r1/sealed").glob("turns.*.parquet"))) == 30
    assert open_warehouse(tmp_path).sql("SELECT count(*), sum(turns) FROM trajectories").fetchall()[0] == (100, 300)


def test_other_records_reach_their_tables(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        log.tasks([make_task(), make_task(id="t2"), make_task()])
        log.tasks([make_task()])
        log.metrics({"loss/all/mean": 0.5, "kl/all/mean": float("nan")}, stage="rl-1", step=2)
        log.stage("rl-1", "started", horizon=4)
        log.stage("rl-1", "finished", steps=9)
        log.event("progress", step=2, note="half")
        log.checkpoint(CheckpointRecord("c1", "/somewhere", "rl-1", 2, "abc", "c0", 0.5))
        play(log, [1.0], calls=3)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT task_id FROM tasks ORDER BY 1").fetchall() == [("t1",), ("t2",)]
        assert warehouse.sql("SELECT name, value FROM metrics ORDER BY 1").fetchall() == [
            ("kl/all/mean", None),
            ("loss/all/mean", 0.5),
        ]
        assert warehouse.sql("SELECT stage, status FROM stage_status").fetchall() == [("rl-1", "finished")]
        assert warehouse.sql("SELECT kind, step, fields->>'note' FROM events").fetchall() == [("progress", 2, "half")]
        assert warehouse.sql("SELECT checkpoint, parent, score FROM checkpoints").fetchall() == [("c1", "c0", 0.5)]
        assert warehouse.sql("SELECT n, role, price FROM model_calls ORDER BY n").fetchall() == [
            (1, "user", 0.001),
            (2, "user", 0.001),
            (3, "user", 0.001),
        ]


@pytest.mark.parametrize("phase", ["train", "baseline", "evaluate"])
def test_a_call_says_what_was_asked_outside_training_and_one_without_a_turn_is_kept(
    tmp_path: Path, phase: Phase
) -> None:
    asked = [{"role": "user", "content": "Is it \u201cyes\u201d?"}]
    with TurnLog.open(tmp_path, "r1") as log:
        trajectory = play(log, [1.0], end=False, phase=phase)
        trajectory.unfinished_calls = [
            ModelCall("policy", "gpt-4o", attempts=3, error="HTTP500"),
            ModelCall("judge", "gpt-4o", 7, 1, estimated=True, prompt=asked, reply="No"),
        ]
        log.end(trajectory)
    kept = (json.dumps(asked, ensure_ascii=False), "No") if phase == "evaluate" else (None, None)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql(
            "SELECT turn, n, role, attempts, error, estimated, prompt, reply FROM model_calls ORDER BY n"
        ).fetchall() == [
            (2, 1, "policy", 3, "HTTP500", False, None, None),
            (2, 2, "judge", 1, None, True, *kept),
        ]


@pytest.mark.parametrize("text", ["\ud800 lone", "nul \x00 byte", 'quote " and \\', "\u2028 \n \r\n", "😀" * 1000, ""])
def test_any_text_an_agent_may_write_survives(tmp_path: Path, text: str) -> None:
    log = TurnLog.open(tmp_path, "r1")
    play(log, [1.0], text=text)
    expected = text.encode("utf-8", "replace").decode()
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT content FROM turns").fetchall() == [(expected,)]
        log.close()
        assert warehouse.sql("SELECT content FROM turns").fetchall() == [(expected,)]


def test_a_gym_s_info_may_have_keys_that_json_has_not() -> None:
    assert text_of({(0, 1): "wall", np.int64(3): 2, b"k": "\ud800"}) == """{"(0, 1)":"wall","3":2,"b'k'":"?"}"""


def test_a_gym_s_info_may_contain_itself_or_be_deep_or_have_no_text() -> None:
    class Textless:
        def __str__(self) -> str:
            raise ValueError("no text")

    itself: dict[str, object] = {"a": 1}
    itself["b"] = [itself]
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    assert any_text(itself) == '{"a":1,"b":["..."]}'
    assert any_text(deep) == "[" * 200 + '"..."' + "]" * 200
    assert any_text({"wall": Textless(), Textless(): 2}) == '{"wall":"(Textless)","(Textless)":2}'


def test_a_run_whose_folder_was_removed_does_not_write_over_its_packs(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0, 0.5])
    compact(tmp_path)
    shutil.rmtree(tmp_path / "runs" / "run=r1")
    with raises("warehouse.damaged", "start a new run with fresh=true"):
        TurnLog.open(tmp_path, "r1")
    with TurnLog.open(tmp_path, "r1.2") as log:
        play(log, [0.25])
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT run_id, reward FROM turns_all ORDER BY ALL").fetchall()[-1] == ("r1.2", 0.25)


def test_a_huge_turn_is_logged_and_sealed(tmp_path: Path) -> None:
    text = "x" * 30_000_000
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0], text=text)
        assert open_warehouse(tmp_path).sql("SELECT len(content) FROM turns").fetchall()[0] == (30_000_000,)
    assert open_warehouse(tmp_path).sql("SELECT len(content) FROM turns").fetchall()[0] == (30_000_000,)


def test_registering_a_run_again_keeps_its_first_row(tmp_path: Path) -> None:
    TurnLog.open(tmp_path, "r1", run_fields={"name": "first", "gamma": 0.5}).close()
    again = TurnLog.open(tmp_path, "r1", run_fields={"name": "second"})
    again.close()
    assert (again.incarnation, again.writer, again.run_no) == (2, 2, 1)
    assert open_warehouse(tmp_path).sql("SELECT run_no, name, gamma FROM runs").fetchall() == [(1, "first", 0.5)]


def test_many_processes_registering_one_run_agree_on_its_number(tmp_path: Path) -> None:
    code = (
        "import sys; from warehouse import TurnLog\n"
        "log = TurnLog.open(sys.argv[1], 'r1'); print(log.run_no, log.writer); log.close()"
    )
    procs = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    printed = [proc.communicate()[0].split() for proc in procs]
    assert len({run for run, _ in printed}) == 1
    assert sorted(writer for _, writer in printed) == ["1", "2", "3", "4"]


def test_traj_ids_never_collide_across_runs_writers_and_threads(tmp_path: Path) -> None:
    logs = [TurnLog.open(tmp_path, run) for run in ("r1", "r1", "r2")]
    ids: list[int] = []

    def many(log: TurnLog) -> None:
        for _ in range(50):
            ids.append(play(log, [1.0]).traj_id or 0)

    threads = [threading.Thread(target=many, args=(log,)) for log in logs for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for log in logs:
        log.close()
    assert len(set(ids)) == 450
    assert open_warehouse(tmp_path).sql("SELECT count(DISTINCT traj_id) FROM turns").fetchall()[0] == (450,)


def test_an_unknown_run_field_is_refused_by_name(tmp_path: Path) -> None:
    with raises("argument.unknown_value", "'gama'"):
        TurnLog.open(tmp_path, "r1", run_fields={"gama": 1})


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", ".hidden", "x" * 200])
def test_a_run_id_that_is_no_folder_name_is_refused(tmp_path: Path, run_id: str) -> None:
    with raises("argument.malformed"):
        TurnLog.open(tmp_path, run_id)


def test_misuse_is_named(tmp_path: Path) -> None:
    log = TurnLog.open(tmp_path, "r1")
    done = play(log, [1.0])
    with raises("log.misused"):
        log.end(done)
    with raises("log.misused"):
        log.turn(done, make_turn(2, 0.0))
    log.credits(done.traj_id or 0, [1.0], [1.0])
    with raises("log.misused"):
        log.credits(done.traj_id or 0, [1.0], [1.0])
    with raises("log.misused"):
        log.credits(done.traj_id or 0, [1.0], [1.0, 2.0])
    with raises("log.misused"):
        log.event("rewind")
    log.close()
    log.close()
    with raises("log.misused"):
        play(log, [1.0])


def test_a_forked_child_cannot_write_into_its_parents_log(tmp_path: Path) -> None:
    log = TurnLog.open(tmp_path, "r1")
    pid = os.fork()
    if pid == 0:
        try:
            play(log, [1.0])
        except LogError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    log.close()


KILLED = """
import os, signal, sys
from tests.warehouse.makers import play
from warehouse import TurnLog
log = TurnLog.open(sys.argv[1], "r1")
for n in range(100):
    play(log, [0.0, 1.0], step=n + 1, end=n < 99)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_log_returned_for_survives_kill_9_and_is_sealed_later(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    count = "SELECT (SELECT count(*) FROM turns), (SELECT count(*) FROM trajectories), (SELECT max(step) FROM turns)"
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql(count).fetchall()[0] == (200, 99, 100)
        assert compact(tmp_path).recovered >= 2
        assert not list((tmp_path / "runs/run=r1/live").iterdir())
        assert warehouse.sql(count).fetchall()[0] == (200, 99, 100)


def test_a_torn_tail_is_no_row_and_is_counted(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False)
    live = tmp_path / "runs/run=r1/live/turns.00001.000001.jsonl"
    content = live.read_bytes()
    live.write_bytes(content[:-40])
    torn = len(content) - 40 - (content[:-40].rfind(b"\n") + 1)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT count(*), count(traj_id) FROM turns").fetchall()[0] == (199, 199)
        assert compact(tmp_path).torn_bytes == torn
        assert warehouse.sql("SELECT count(*) FROM turns").fetchall()[0] == (199,)


def test_a_living_writers_files_are_left_alone_by_the_compactor(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0])
        assert compact(tmp_path).recovered == 0
        play(log, [1.0])
        assert open_warehouse(tmp_path).sql("SELECT count(*) FROM turns").fetchall()[0] == (2,)


FULL = """
import resource, sys
from tests.warehouse.makers import play
from userrl_core.errors import LogError
from warehouse import TurnLog
log = TurnLog.open(sys.argv[1], "r1")
played = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    while True:
        play(log, [1.0])
        played += 1
except LogError as error:
    print(played, error)
try:
    play(log, [1.0])
except LogError:
    print("still refused")
log.close()
print("stopped cleanly")
"""


def test_a_full_disk_is_one_sentence_at_once_and_loses_nothing(tmp_path: Path) -> None:
    out = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    first, second, third = out.stdout.splitlines()
    assert out.returncode == 0, out.stderr
    played = int(first.split()[0])
    assert "cannot write" in first
    assert "Free space" in first
    assert (second, third) == ("still refused", "stopped cleanly")
    assert out.stderr == ""
    compact(tmp_path)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT count(*) FROM trajectories").fetchall()[0] == (played,)


def test_a_full_disk_at_opening_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder should be")
    with raises("log.cannot_write"):
        TurnLog.open(tmp_path, "r1")


def test_a_full_disk_at_registration_leaves_no_run_without_a_row(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1"):
        pass
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))
    try:
        with raises("log.cannot_write"):
            register_run(tmp_path, "r2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [folder.name for folder in (tmp_path / "runs").iterdir()] == ["run=r1"]
    assert check(tmp_path).sound


def test_flags_of_turns_are_gathered_on_the_trajectory(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        trajectory = Trajectory(Task("g", "t", "test", {}), 0, 4, 1)
        log.begin(trajectory)
        for number, flag in enumerate([Flag.FORMAT_ERROR, Flag.NONE, Flag.LENGTH | Flag.TIMEOUT], 1):
            turn = make_turn(number, 0.0)
            turn.flags = flag
            trajectory.turns.append(turn)
            log.turn(trajectory, turn)
        trajectory.stop_reason = "format"
        log.end(trajectory)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT flags FROM trajectories").fetchall() == [(25,)]
