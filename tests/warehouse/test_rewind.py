from __future__ import annotations

from pathlib import Path

import pytest

from tests.makers import raises
from tests.warehouse.makers import play
from userrl_core.records import CheckpointRecord
from warehouse import TurnLog, open_warehouse


def steps(root: Path, table: str = "trajectories") -> list[tuple[object, ...]]:
    with open_warehouse(root) as warehouse:
        return warehouse.sql(f"SELECT phase, step, count(*) FROM {table} GROUP BY ALL ORDER BY ALL").fetchall()


def first_start(root: Path, last: int = 4) -> TurnLog:
    log = TurnLog.open(root, "r1")
    play(log, [1.0], stage="distill", step=0, phase="distill")
    for step in range(1, last + 1):
        play(log, [0.0, 1.0], step=step, credits=[1.0, 1.0])
        play(log, [0.5], step=step, phase="validate", split="validation")
        log.metrics({"reward/train/mean": step}, stage="rl-1", step=step)
    log.metrics({"loss/sft/mean": 1.0}, stage="sft", step=40)
    return log


def test_a_rewind_hides_later_training_and_validation_of_earlier_starts_only(tmp_path: Path) -> None:
    first_start(tmp_path).close()
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", stage="rl-1", step=2)
        play(log, [0.25], step=3, credits=[1.0])
    assert steps(tmp_path) == [
        ("distill", 0, 1),
        ("train", 1, 1),
        ("train", 2, 1),
        ("train", 3, 1),
        ("validate", 1, 1),
        ("validate", 2, 1),
    ]
    assert steps(tmp_path, "trajectories_all")[3:5] == [("train", 3, 2), ("train", 4, 1)]
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT count(*), count(advantage) FROM turns WHERE phase = 'train'").fetchall()[0] == (
            5,
            5,
        )
        assert warehouse.sql("SELECT count(*) FROM turns_all WHERE phase = 'train'").fetchall()[0] == (9,)
        assert warehouse.sql("SELECT count(*) FROM credits").fetchall()[0] == (5,)
        assert warehouse.sql("SELECT name, step FROM metrics ORDER BY ALL").fetchall() == [
            ("loss/sft/mean", 40),
            ("reward/train/mean", 1),
            ("reward/train/mean", 2),
        ]


def test_a_rewind_hides_the_greedy_conversations_of_steps_that_are_played_again(tmp_path: Path) -> None:
    for incarnation in range(2):
        with TurnLog.open(tmp_path, "r1") as log:
            if incarnation:
                log.event("rewind", stage="rl-1", step=1)
            for step in range(1 + incarnation, 3):
                play(log, [0.5], step=step, phase="baseline")
    assert steps(tmp_path) == [("baseline", 1, 1), ("baseline", 2, 1)]
    assert steps(tmp_path, "trajectories_all") == [("baseline", 1, 1), ("baseline", 2, 2)]


def test_a_straggler_of_the_killed_start_is_hidden_even_if_it_writes_later(tmp_path: Path) -> None:
    old = first_start(tmp_path, last=2)
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", step=2)
        play(old, [1.0], step=3)
        old.close()
        play(log, [0.0], step=3)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT return_sum FROM trajectories WHERE step = 3").fetchall() == [(0.0,)]


def test_a_restarted_stage_hides_all_that_was_written_for_it_before(tmp_path: Path) -> None:
    first_start(tmp_path, last=1).close()
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", stage="distill")
        play(log, [0.5, 0.5], stage="distill", step=0, phase="distill")
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT stage, turns FROM trajectories ORDER BY ALL").fetchall() == [
            ("distill", 2),
            ("rl-1", 1),
            ("rl-1", 2),
        ]


def test_a_turn_without_a_finished_trajectory_is_rewound_as_well(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.0, 0.0], step=5, end=False)
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", step=4)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT (SELECT count(*) FROM turns), (SELECT count(*) FROM turns_all)").fetchall()[0] == (
            0,
            2,
        )


def test_a_log_that_wrote_already_begins_a_new_incarnation_when_it_rewinds(tmp_path: Path) -> None:
    log = first_start(tmp_path, last=3)
    assert log.incarnation == 1
    log.event("rewind", step=1)
    assert log.incarnation == 2
    play(log, [0.0], step=2)
    log.close()
    assert steps(tmp_path)[1:3] == [("train", 1, 1), ("train", 2, 1)]


def test_workers_that_join_are_not_rewound_by_their_own_start(tmp_path: Path) -> None:
    first_start(tmp_path, last=3).close()
    driver = TurnLog.open(tmp_path, "r1")
    driver.event("rewind", step=1)
    worker = TurnLog.open(tmp_path, "r1", join=driver.incarnation)
    play(worker, [0.75], step=2)
    worker.close()
    driver.close()
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT return_sum FROM trajectories WHERE step = 2").fetchall() == [(0.75,)]
    with raises("log.misused"):
        TurnLog.open(tmp_path, "r1", join=9)


def test_repeated_rewinds_keep_the_latest_history(tmp_path: Path) -> None:
    for start in range(4):
        with TurnLog.open(tmp_path, "r1") as log:
            log.event("rewind", step=start)
            for step in range(start + 1, 8):
                play(log, [start / 4], step=step)
    with open_warehouse(tmp_path) as warehouse:
        rows = warehouse.sql("SELECT step, return_sum FROM trajectories ORDER BY step").fetchall()
    assert rows == [(1, 0.0), (2, 0.25), (3, 0.5), (4, 0.75), (5, 0.75), (6, 0.75), (7, 0.75)]


def test_a_rewind_of_one_run_leaves_others_alone(tmp_path: Path) -> None:
    first_start(tmp_path, last=2).close()
    with TurnLog.open(tmp_path, "r2") as log:
        log.event("rewind", step=0)
    assert ("train", 2, 1) in steps(tmp_path)


def test_an_open_reader_sees_the_rewind(tmp_path: Path) -> None:
    first_start(tmp_path, last=2).close()
    with open_warehouse(tmp_path) as warehouse, TurnLog.open(tmp_path, "r1") as log:
        count = "SELECT count(*) FROM trajectories WHERE phase = 'train'"
        assert warehouse.sql(count).fetchall()[0] == (2,)
        log.event("rewind", step=1)
        assert warehouse.sql(count).fetchall()[0] == (1,)


@pytest.mark.parametrize("stage", ["sft", "sft-2"])
def test_a_resumed_fine_tuning_hides_its_own_later_metrics_and_nothing_else(tmp_path: Path, stage: str) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for step in range(1, 5):
            log.metrics({"loss/sft/mean": step}, stage=stage, step=step)
        play(log, [1.0], step=9)
        log.metrics({"reward/train/mean": 1.0}, stage="rl-1", step=9)
    for _ in range(2):
        with TurnLog.open(tmp_path, "r1") as log:
            log.event("rewind", stage=stage, step=2)
            for step in (3, 4):
                log.metrics({"loss/sft/mean": 10 * step}, stage=stage, step=step)
    with open_warehouse(tmp_path) as warehouse:
        rows = warehouse.sql("SELECT stage, step, value FROM metrics ORDER BY ALL").fetchall()
        assert rows == [("rl-1", 9, 1.0), (stage, 1, 1.0), (stage, 2, 2.0), (stage, 3, 30.0), (stage, 4, 40.0)]
        assert warehouse.sql("SELECT count(*) FROM metrics_all").fetchall() == [(9,)]
    assert steps(tmp_path) == [("train", 9, 1)]


def test_a_rewind_on_a_branch_reaches_the_stages_of_that_branch_alone(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0], step=1, stage="rl-1")
        for stage in ("rl-2-a", "rl-3-b", "rl-4-b"):
            for step in (2, 3):
                play(log, [1.0], step=step, stage=stage)
                log.metrics({"reward/train/mean": step}, stage=stage, step=step)
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", stage="rl-3-b", step=2)
    question = "SELECT stage, step FROM {} WHERE step > 1 ORDER BY ALL"
    left = [("rl-2-a", 2), ("rl-2-a", 3), ("rl-3-b", 2), ("rl-4-b", 2)]
    with open_warehouse(tmp_path) as warehouse:
        for table in ("trajectories", "turns", "metrics"):
            assert warehouse.sql(question.format(table)).fetchall() == left
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", stage="rl-1", step=1)
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql(question.format("trajectories")).fetchall() == []


def test_a_rewind_of_one_stage_leaves_the_stages_after_it_as_they_are(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        for stage, step in (("rl-1", 1), ("rl-1", 2), ("rl-2", 3), ("rl-3-a", 4)):
            for phase in ("train", "validate"):
                play(log, [1.0], step=step, stage=stage, phase=phase, credits=[1.0])  # type: ignore[arg-type]
            log.metrics({"reward/train/mean": step}, stage=stage, step=step)
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", stage="rl-1", step=1, scope="stage")
    left = [("rl-1", 1), ("rl-2", 3), ("rl-3-a", 4)]
    with open_warehouse(tmp_path) as warehouse:
        for table in ("trajectories", "turns", "metrics"):
            assert warehouse.sql(f"SELECT DISTINCT stage, step FROM {table} ORDER BY ALL").fetchall() == left
        assert warehouse.sql("SELECT count(*) FROM credits").fetchall() == [(6,)]
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", stage="rl-2", step=-1, scope="stage")
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT DISTINCT stage FROM turns ORDER BY 1").fetchall() == [("rl-1",), ("rl-3-a",)]


def test_demonstrations_of_hidden_conversations_are_hidden(tmp_path: Path) -> None:
    for start in range(2):
        with TurnLog.open(tmp_path, "r1") as log:
            if start:
                log.event("rewind", stage="distill")
            played = play(log, [1.0], stage="distill", step=0, phase="distill")
            log.demonstrations([played.traj_id or 0])
            play(log, [1.0], stage="evaluate", phase="evaluate", task=f"t{start}")
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT traj_id FROM demonstrations").fetchall() == [(played.traj_id,)]
        assert warehouse.sql("SELECT DISTINCT demonstrations FROM lineage()").fetchall() == [(1,)]


def test_a_checkpoint_that_is_logged_again_is_one(tmp_path: Path) -> None:
    for _ in range(2):
        with TurnLog.open(tmp_path, "r1") as log:
            for step in (1, 2):
                log.checkpoint(CheckpointRecord(f"c{step}", f"/step-{step}", "rl-1", step, "abc", f"c{step - 1}"))
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("SELECT checkpoint, incarnation FROM checkpoints ORDER BY 1").fetchall() == [
            ("c1", 1),
            ("c2", 1),
        ]


def test_a_replay_hides_the_rejected_trajectories_of_its_stage_and_no_others(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.5, None], task="t1", stage="evaluate", phase="evaluate", calls=1)
        play(log, [1.0], task="t2", stage="evaluate", phase="evaluate", calls=1)
        play(log, [None], task="t3")
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("replay", stage="evaluate")
        play(log, [None], task="t1", stage="evaluate", phase="evaluate", calls=1)
    with open_warehouse(tmp_path) as warehouse:
        shown = "SELECT task_id, stage, incarnation, admitted FROM trajectories ORDER BY ALL"
        assert warehouse.sql(shown).fetchall() == [
            ("t1", "evaluate", 2, False),
            ("t2", "evaluate", 1, True),
            ("t3", "rl-1", 1, False),
        ]
        assert warehouse.sql("SELECT count(*) FROM turns").fetchall() == [(3,)]
        assert warehouse.sql("SELECT count(*) FROM model_calls").fetchall() == [(2,)]
        assert warehouse.sql("SELECT count(*) FROM trajectories_all").fetchall() == [(4,)]
        ids = [i for (i,) in warehouse.sql("SELECT traj_id FROM trajectories_all ORDER BY 1").fetchall()]
        assert [warehouse.turns_at([(i, 1)], ["message"]).num_rows for i in ids] == [0, 1, 1, 1]
    with raises("log.misused"), TurnLog.open(tmp_path, "r1") as log:
        log.event("replay")
