from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.makers import raises
from tests.places import ROOT
from tests.warehouse.makers import play
from warehouse import TurnLog, open_warehouse
from warehouse.files.runs import TrialRecord, find_run, record_trial
from warehouse.upkeep.compact import compact

ISSUE = "select stage, step, avg(score) from trajectories where split='train' group by all order by step"


def test_a_learning_curve_is_answered_while_another_process_writes(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [0.5], step=1, score=0.5)
        play(log, [0.0], step=2, score=0.0)
        play(log, [1.0], step=2, score=1.0)
    code = (
        "import sys; from tests.warehouse.makers import play; from warehouse import TurnLog\n"
        "log = TurnLog.open(sys.argv[1], 'r2')\n"
        "print('ready', flush=True)\n"
        "for n in range(3000): play(log, [0.0, 1.0], step=n, split='test')\n"
        "log.close()"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    with open_warehouse(tmp_path) as warehouse:
        while writer.poll() is None:
            assert warehouse.sql(ISSUE).fetchall() == [("rl-1", 1, 0.5), ("rl-1", 2, 0.5)]
        assert warehouse.sql("SELECT count(*) FROM turns WHERE run_id = 'r2'").fetchall() == [(6000,)]


def test_threads_may_share_a_warehouse(tmp_path: Path) -> None:
    log = TurnLog.open(tmp_path, "r1")
    wrong: list[object] = []
    with open_warehouse(tmp_path) as warehouse:

        def ask() -> None:
            for n in range(1, 15):
                if warehouse.sql("SELECT $n * 2", n=n).fetchall() != [(2 * n,)]:
                    wrong.append(n)
                turns, distinct = warehouse.sql(
                    "SELECT count(*), count(DISTINCT (traj_id, turn)) FROM turns"
                ).fetchall()[0]
                if turns != distinct:
                    wrong.append((turns, distinct))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for step in range(100):
            play(log, [1.0, 0.0], step=step)
        for thread in threads:
            thread.join()
    log.close()
    assert wrong == []


def test_a_result_stays_as_it_was_after_the_warehouse_is_closed(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        play(log, [1.0])
        with open_warehouse(tmp_path) as warehouse:
            result = warehouse.sql("SELECT count(*) AS n FROM turns")
        play(log, [1.0])
    assert result.pl()["n"].to_list() == [1]
    assert result.df()["n"].tolist() == [1]


@pytest.mark.parametrize(
    "text", ["CREATE TABLE x(i INT)", "COPY turns TO 'x.csv'", "SET threads = 1", "SELECT 1; SELECT 2"]
)
def test_a_reader_takes_one_reading_statement_only(tmp_path: Path, text: str) -> None:
    TurnLog.open(tmp_path, "r1").close()
    with open_warehouse(tmp_path) as warehouse, raises("sql.not_a_select"):
        warehouse.sql(text)


@pytest.mark.parametrize(
    "text", ["DESCRIBE turns", "EXPLAIN SELECT 1", "FROM runs", "PIVOT turns ON gym USING count(*)", "SUMMARIZE turns"]
)
def test_statements_that_only_look_are_taken(tmp_path: Path, text: str) -> None:
    TurnLog.open(tmp_path, "r1").close()
    with open_warehouse(tmp_path) as warehouse:
        warehouse.sql(text)


def test_no_warehouse_and_unknown_queries_are_named(tmp_path: Path) -> None:
    with raises("warehouse.missing"):
        open_warehouse(tmp_path / "nowhere")
    TurnLog.open(tmp_path, "r1").close()
    with open_warehouse(tmp_path) as warehouse:
        with raises("warehouse.unknown_query", "did you mean 'gym_scores'"):
            warehouse.query("gym_score")
        with raises("warehouse.unknown_query", "'fase'"):
            warehouse.query("gym_scores", fase="x")
        with raises("warehouse.unknown_query"):
            warehouse.query("trajectory")


def test_a_run_is_found_by_name_prefix_and_latest(tmp_path: Path) -> None:
    for run, name in [("abc1", "first"), ("abd2", "second"), ("xyz3", "first")]:
        TurnLog.open(tmp_path, run, run_fields={"name": name}).close()
    assert find_run(tmp_path, "latest")["run_id"] == "xyz3"
    assert find_run(tmp_path, "first")["run_id"] == "xyz3"
    assert find_run(tmp_path, "abd")["run_id"] == "abd2"
    with raises("run.no_such_run", "'ab'"):
        find_run(tmp_path, "ab")
    with raises("run.no_such_run"):
        find_run(tmp_path, "zzz")


def test_the_last_state_of_a_trial_counts(tmp_path: Path) -> None:
    TurnLog.open(tmp_path, "r1").close()
    record_trial(tmp_path, TrialRecord("gamma", 0, "r1", "running", params={"gamma": 0.5}))
    record_trial(tmp_path, TrialRecord("gamma", 0, "r1", "complete", 0.75, {"gamma": 0.5}))
    record_trial(tmp_path, TrialRecord("gamma", 1, None, "failed"))
    with open_warehouse(tmp_path) as warehouse:
        rows = warehouse.sql("SELECT number, state, value, params->>'gamma' FROM trials ORDER BY number").fetchall()
    assert rows == [(0, "complete", 0.75, "0.5"), (1, "failed", None, None)]


def test_a_warehouse_of_one_run_answers_about_it_as_the_whole_does_and_reads_no_file_of_others(tmp_path: Path) -> None:
    own = (
        "SELECT * FROM turns WHERE run_id = 'a' ORDER BY traj_id, turn",
        "SELECT * FROM trajectories WHERE run_id = 'a' ORDER BY traj_id",
        "SELECT name, step, value FROM metrics WHERE run_id = 'a' ORDER BY ALL",
    )

    def told(run: str | tuple[str, ...] | None) -> list[Any]:
        with open_warehouse(tmp_path, run=run) as warehouse:
            return [warehouse.sql(text).fetchall() for text in own]

    for name in ("a", "b"):
        with TurnLog.open(tmp_path, name) as log:
            for step in (1, 2, 3):
                play(log, [0.0, 1.0], step=step, credits=[0.5, 0.5])
                log.metrics({"x/y/z": step}, stage="rl-1", step=step)
            log.event("rewind", stage="rl-1", step=2)
            play(log, [1.0], step=3)
    assert told("a") == told(("a", "nobody")) == told(None)
    assert len(told("a")[1]) == 3, "the one that is played again counts once"
    with open_warehouse(tmp_path, run="a") as warehouse:
        assert warehouse.sql("SELECT DISTINCT run_id FROM turns").fetchall() == [("a",)]
    with open_warehouse(tmp_path, run=["b", "a"]) as warehouse:
        assert warehouse.sql("SELECT DISTINCT run_id FROM turns ORDER BY ALL").fetchall() == [("a",), ("b",)]
    compact(tmp_path)
    with TurnLog.open(tmp_path, "a") as log:
        play(log, [0.25], step=4)
    assert told("a") == told(None)
    with open_warehouse(tmp_path, run="nobody") as warehouse:
        assert warehouse.sql("SELECT count(*) FROM metrics WHERE run_id = 'nobody'").fetchall() == [(0,)]
