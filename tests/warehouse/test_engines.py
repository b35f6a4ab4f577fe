"""DuckDB and Polars answer the documented questions over an exported folder as `userrl sql` does over the warehouse."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.warehouse import engines
from tests.warehouse.engines import REFERENCE, TRUTH, answers, differences
from tests.warehouse.makers import play
from warehouse import TurnLog, open_warehouse
from warehouse.upkeep.export import export


def two_runs(root: Path) -> None:
    """Two runs with other scores each, branches, rejected conversations, rewinds of every kind, and attempts at tasks."""
    for run, score in (("r1", "sum"), ("r2", "mean")):
        with TurnLog.open(root, run, run_fields={"score": score}) as log:
            for step in range(1, 4):
                for n in range(3):
                    rewards = [0.0, 0.5 * n, 1.0 * (step % 2)]
                    ending: Any = "success" if n else "horizon"
                    play(log, rewards, step=step, attempt=n, group=f"{step}", score=float(n > 0), stop_reason=ending)
                play(log, [None] if step == 2 else [1.0], step=step, attempt=9, group=f"{step}-b")
                play(log, [0.5], step=step, phase="validate", split="validation")
                play(log, [0.5], step=step, phase="baseline")
                play(log, [0.5], step=step, stage="rl-2-a")
                play(log, [0.5], step=step, stage="rl-2-b")
            play(log, [1.0], step=0, stage="explore")
        with TurnLog.open(root, run) as log:
            if run == "r1":
                log.event("rewind", stage="rl-1", step=2)
                log.event("rewind", stage="rl-1", step=1, scope="stage")
                log.event("rewind", stage="rl-2-a", step=1)
                log.event("rewind", stage="sft", step=0)
                log.event("replay", stage="rl-1")
            else:
                log.event("rewind", step=2)
                log.event("rewind", stage="explore")
            play(log, [1.0], step=3)
            for task in ("t1", "t2"):
                for n in range(3):
                    ending = "success" if n or task == "t2" else "horizon"
                    rewards = [0.0, 1.0 * n]
                    play(log, rewards, task=task, phase="evaluate", stage="evaluate", attempt=n, stop_reason=ending)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A warehouse, and the folder it was exported to."""
    root, out = tmp_path_factory.mktemp("warehouse"), tmp_path_factory.mktemp("out")
    two_runs(root)
    export(root, str(out))
    return root, next(out.glob("home=*"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_an_engine_answers_the_five_questions_as_the_warehouse_does(engine: str, exported: tuple[Path, Path]) -> None:
    root, out = exported
    answered = answers(engine, out)
    with open_warehouse(root) as warehouse:
        for question, text in TRUTH.items():
            rows = warehouse.rows(text)
            assert len(rows) > 1
            assert differences(rows, answered[question]) == [], question


def test_the_page_shows_the_python_that_is_run() -> None:
    call = r"pl\.scan_parquet\([^)]*\)"
    code = inspect.getsource(engines)
    page = (REFERENCE / "engines.md").read_text()
    shown, run = (re.search(call, text) for text in (page, code))
    assert shown is not None
    assert run is not None
    of_folder = re.sub(r"s3a?://bucket/userrl/HOME", "{folder}", shown[0])
    of_table = re.sub(r"\bturns\b", "{table}", of_folder).replace('"{table}"', "table")
    bare = [re.sub(r"\s", "", text).replace(",)", ")").replace('f"', '"') for text in (of_table, run[0])]
    assert bare[0] == bare[1]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", "polars"])
@pytest.mark.parametrize("older", ["first", "last"])
def test_objects_of_an_earlier_schema_are_read_with_the_later_ones(
    engine: str, older: str, exported: tuple[Path, Path], tmp_path: Path
) -> None:
    _, out = exported
    for path in sorted(out.rglob("*.parquet")):
        table = pq.read_table(path, partitioning=None)
        of_turns = path.relative_to(out).parts[0] == "turns"
        if of_turns and ("run=r1" in str(path)) == (older == "first"):
            table = table.drop_columns(["advantage"])
        target = tmp_path / path.relative_to(out)
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, target)
    older_rows, rows = (answers(engine, folder)["rewinds_hidden"] for folder in (tmp_path, out))
    assert differences(rows, older_rows) == []


def test_answers_differ_by_a_number_and_not_by_order_or_rounding() -> None:
    rows: list[dict[str, Any]] = [{"k": 1, "p": 0.1 + 0.2}, {"k": 2, "p": None}]
    reordered: list[dict[str, Any]] = [{"p": None, "k": 2}, {"p": 0.3, "k": 1.0}]
    assert differences(rows, reordered) == []
    assert differences(rows, [reordered[0], {"p": 0.30001, "k": 1}]) == ['{"k": 1}']
    assert differences(rows, rows[:1]) == ['{"k": 2}']
    assert differences([{"k": 1, "p": None}], [{"k": 1, "p": math.nan}]) == ['{"k": 1}']
