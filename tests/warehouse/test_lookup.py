"""One trajectory by its id is read from few files; it is what the view gives, wherever the rows lie."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from tests.warehouse.makers import play
from userrl_core.errors import UserRLError
from warehouse import TurnLog, open_warehouse
from warehouse.files.layout import Segment, run_dir, sealed_path
from warehouse.files.seal import write_segment
from warehouse.schema import arrow_schema
from warehouse.search.index import HIT_COLUMNS
from warehouse.upkeep.compact import compact


def assert_both_ways_agree(root: Path, ids: list[int]) -> int:
    """How many of the ids have turns."""
    with_turns = 0
    with open_warehouse(root) as warehouse:
        for traj_id in ids:
            by_query, by_sql = warehouse.query("trajectory", id=traj_id), warehouse.sql(f"FROM trajectory({traj_id})")
            assert by_query.columns == by_sql.columns
            assert by_query.types == by_sql.types
            rows = by_query.fetchall()
            assert rows == by_sql.fetchall()
            with_turns += bool(rows)
    return with_turns


def test_a_trajectory_is_found_live_sealed_packed_and_with_credits_that_lie_apart(tmp_path: Path) -> None:
    ids = []
    with TurnLog.open(tmp_path, "r1") as trainer, TurnLog.open(tmp_path, "r1", join=trainer.incarnation) as worker:
        other = TurnLog.open(tmp_path, "r2")
        for step in (1, 2):
            ids += [play(trainer, [0.0, 1.0], step=step, credits=[1.0, 2.0]).traj_id or 0]
            played = play(worker, [0.5, None, 0.25], step=step)
            # The trainer knows the credit of what a worker played.
            trainer.credits(played.traj_id or 0, [0.1, 0.2, 0.3], [1.0, 2.0, 3.0])
            ids += [played.traj_id or 0, play(other, [1.0], step=step, text="other").traj_id or 0]
        assert assert_both_ways_agree(tmp_path, ids) == 6
        late = play(worker, [1.0, 1.0], step=3)
        ids.append(late.traj_id or 0)
    assert assert_both_ways_agree(tmp_path, ids) == 7
    compact(tmp_path, everything=True)
    assert assert_both_ways_agree(tmp_path, ids) == 7
    with TurnLog.open(tmp_path, "r1") as again:
        again.credits(late.traj_id or 0, [0.5, 0.5], [7.0, 8.0])
    compact(tmp_path, everything=True)
    assert assert_both_ways_agree(tmp_path, ids) == 7
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.query("trajectory", id=late.traj_id).pl()["advantage"].to_list() == [7.0, 8.0]
    other.close()


def test_a_rewound_trajectory_is_hidden_from_both(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        kept, lost = (play(log, [1.0], step=step).traj_id or 0 for step in (1, 2))
    with TurnLog.open(tmp_path, "r1") as log:
        log.event("rewind", stage="rl-1", step=1)
        again = play(log, [0.5], step=2).traj_id or 0
        assert assert_both_ways_agree(tmp_path, [kept, lost, again]) == 2
    compact(tmp_path, everything=True)
    assert assert_both_ways_agree(tmp_path, [kept, lost, again]) == 2


def test_an_id_of_nothing_finds_nothing(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        traj_id = play(log, [1.0]).traj_id or 0
    assert (
        assert_both_ways_agree(tmp_path, [traj_id, traj_id + 1, traj_id + (1 << 24), traj_id + (1 << 40), 0, -1]) == 1
    )


def test_credits_are_found_in_a_pack_that_has_nothing_else_of_their_run(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        late = play(log, [1.0, 1.0]).traj_id or 0
    compact(tmp_path, everything=True)
    with TurnLog.open(tmp_path, "r1") as log:
        log.credits(late, [0.5, 0.5], [7.0, 8.0])
    for run in ("r2", "r3"):
        with TurnLog.open(tmp_path, run) as log:
            play(log, [1.0, 1.0])
    assert len(compact(tmp_path, everything=True, pack_turns=2).packs) == 2
    assert assert_both_ways_agree(tmp_path, [late]) == 1
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.query("trajectory", id=late).pl()["advantage"].to_list() == [7.0, 8.0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("row", [None, b"{"])
def test_a_run_whose_row_is_lost_still_has_its_turns(tmp_path: Path, row: bytes | None, packed: bool) -> None:
    ids = []
    for run in ("r1", "r2"):
        with TurnLog.open(tmp_path, run) as log:
            ids.append(play(log, [0.0, 1.0], text="needle").traj_id or 0)
    compact(tmp_path, everything=packed)
    lost = tmp_path / "runs" / "run=r1" / "run.json"
    lost.unlink() if row is None else lost.write_bytes(row)
    assert assert_both_ways_agree(tmp_path, ids) == 2
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.search("needle").pl()["run_id"].to_list() == ["r2", "r2", "r1", "r1"]


def test_lookups_and_queries_of_many_threads_go_on_while_packs_are_replaced(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        traj_id = play(log, [0.0, 1.0]).traj_id
    compact(tmp_path)
    done, errors, answers = threading.Event(), [], set()
    with open_warehouse(tmp_path) as warehouse:

        def ask(query: Callable[[], duckdb.DuckDBPyRelation]) -> None:
            while not done.is_set():
                try:
                    answers.add(tuple(query().fetchall()))
                except (UserRLError, duckdb.Error) as error:
                    errors.append(error)

        def lookup() -> duckdb.DuckDBPyRelation:
            return warehouse.query("trajectory", id=traj_id).project("turn, reward, run_id")

        def select() -> duckdb.DuckDBPyRelation:
            return warehouse.sql("SELECT turn, reward, run_id FROM turns WHERE run_id = 'r1' ORDER BY turn")

        threads = [threading.Thread(target=ask, args=(query,)) for query in (lookup, lookup, select)]
        for thread in threads:
            thread.start()
        for n in range(3):
            with TurnLog.open(tmp_path, f"other{n}") as log:
                play(log, [1.0])
            assert compact(tmp_path, index=False, many_small_packs=1).merged
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert answers == {((1, 0.0, "r1"), (2, 1.0, "r1"))}


@pytest.mark.slow
def test_turns_far_apart_are_read_without_the_text_between_them(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        first = play(log, [0.5]).traj_id or 0
    draw, rows = random.Random(1), 60_000
    texts = [draw.randbytes(200).hex() for _ in range(rows)]
    ids = range(first + 1, first + 1 + rows)
    given = {"run_id": ["r1"] * rows, "traj_id": ids, "turn": [1] * rows, "observation": texts}
    schema = arrow_schema("turns")
    columns = {name: given.get(name, pa.nulls(rows, schema.field(name).type)) for name in schema.names}
    path = sealed_path(run_dir(tmp_path, "r1"), Segment("r1", "turns", 1, 99))
    write_segment(path, pa.table(columns, schema))
    compact(tmp_path, index=False)
    far = [(ids[-1], 1), (first, 1)]
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.turns_at(far, ["observation"]).column(0).to_pylist() == [texts[-1], "observation 1"]
        few = least_cpu(partial(warehouse.turns_at, far, HIT_COLUMNS))
        # It was more than this until the plan was held together.
        assert few < 0.7 * least_cpu(partial(warehouse.rows, "SELECT max(length(observation)) FROM turns"))


def least_cpu(work: Callable[[], object]) -> float:
    """Processor seconds of a piece of work, in all threads, the least of five times."""
    took = []
    for _ in range(5):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)
