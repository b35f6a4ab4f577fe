from __future__ import annotations

from pathlib import Path

import pytest

from tests.makers import raises
from tests.warehouse.kills import kill_at
from tests.warehouse.makers import play
from warehouse import TurnLog, Warehouse, maintain, open_warehouse
from warehouse.files.layout import Manifest
from warehouse.files.lock import FolderLock
from warehouse.search.index import INDEX, TEXT
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact

COUNTS = """
    SELECT (SELECT count(*) FROM turns), (SELECT count(DISTINCT (traj_id, turn)) FROM turns),
           (SELECT count(advantage) FROM turns), (SELECT count(*) FROM trajectories),
           (SELECT count(*) FROM model_calls), (SELECT count(*) FROM metrics), (SELECT count(*) FROM credits)
"""


def some_run(root: Path, run: str = "r1", *, trajectories: int = 5, credit: bool = True) -> None:
    with TurnLog.open(root, run) as log:
        for n in range(trajectories):
            play(log, [0.0, 0.5, 1.0], step=n, calls=1, credits=[1.0, 2.0, 3.0] if credit else None, text=f"word{n}")
            log.metrics({"a/b/c": n}, stage="rl-1", step=n)


def counts(root: Path) -> tuple[object, ...]:
    with open_warehouse(root) as warehouse:
        return tuple(warehouse.sql(COUNTS).fetchall()[0])


def test_packing_changes_nothing_that_a_reader_sees(tmp_path: Path) -> None:
    some_run(tmp_path, "r1")
    some_run(tmp_path, "r2")
    with open_warehouse(tmp_path) as warehouse:
        everything = "SELECT * FROM turns ORDER BY traj_id, turn"
        before = warehouse.sql(everything).fetchall()
        done = compact(tmp_path)
        assert (done.turns, len(done.packs)) == (30, 1)
        assert not list(tmp_path.glob("runs/*/sealed/*"))
        assert warehouse.sql(everything).fetchall() == before
    assert counts(tmp_path) == (30, 30, 30, 10, 30, 10, 30)
    assert compact(tmp_path).packs == []


def test_credits_that_come_after_their_turns_were_packed_are_joined_all_the_same(tmp_path: Path) -> None:
    log = TurnLog.open(tmp_path, "r1")
    played = play(log, [0.0, 1.0])
    log.close()
    compact(tmp_path)
    with TurnLog.open(tmp_path, "r1") as late:
        late.credits(played.traj_id or 0, [1.0, 1.0], [0.5, 0.25])
    rows = "SELECT turn, advantage FROM turns ORDER BY turn"
    for _ in range(3):
        with open_warehouse(tmp_path) as warehouse:
            assert warehouse.sql(rows).fetchall() == [(1, 0.5), (2, 0.25)]
            assert warehouse.sql("SELECT count(*) FROM credits").fetchall() == [(2,)]
        compact(tmp_path)


def test_many_small_packs_become_one(tmp_path: Path) -> None:
    for n in range(9):
        some_run(tmp_path, f"r{n}")
        compact(tmp_path)
    assert len(Manifest.read(tmp_path).packs) == 1
    assert counts(tmp_path) == (135, 135, 135, 45, 135, 45, 135)
    assert len(list((tmp_path / "packs").iterdir())) == 1


def test_a_large_compaction_is_cut_into_several_packs(tmp_path: Path) -> None:
    for n in range(4):
        some_run(tmp_path, f"r{n}")
    assert len(compact(tmp_path, pack_turns=20).packs) == 4
    assert counts(tmp_path) == (60, 60, 60, 20, 60, 20, 60)


def long_turns(root: Path, turns: int) -> None:
    with TurnLog.open(root, "r1") as log:
        for step in range(turns):
            play(log, [0.5], step=step, text="z" * 200_000)


def test_packs_are_cut_by_the_bytes_of_long_rows_and_not_merged_again(tmp_path: Path) -> None:
    long_turns(tmp_path, 5)
    some_run(tmp_path, "r2")
    long_turns(tmp_path, 5)
    some_run(tmp_path, "r3")
    with open_warehouse(tmp_path) as warehouse:
        before = warehouse.sql("FROM turns ORDER BY traj_id, turn").fetchall()
    done = compact(tmp_path, pack_long_row_bytes=3_000_000)
    assert (len(done.packs), done.turns) == (2, 40)
    assert [pack["long_row_bytes"] // 1_000_000 for pack in Manifest.read(tmp_path).packs.values()] == [2, 2]
    assert compact(tmp_path, pack_long_row_bytes=3_000_000, many_small_packs=1).merged == []
    assert len(compact(tmp_path, many_small_packs=1).merged) == 2
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.sql("FROM turns ORDER BY traj_id, turn").fetchall() == before
    assert check(tmp_path).problems == []


@pytest.mark.parametrize("packed", [False, True])
def test_the_text_index_reads_turns_in_batches_of_few_bytes_and_in_order(tmp_path: Path, packed: bool) -> None:
    some_run(tmp_path, "r1")
    some_run(tmp_path, "r2", trajectories=40)
    long_turns(tmp_path, 3)
    if packed:
        compact(tmp_path, index=False)
    with Warehouse(tmp_path) as warehouse:
        stored = warehouse.turns_beyond(frozenset(), most_bytes=5_000)
        assert stored is not None
        batches = [list(batch) for batch in stored.batches]
        text = f"SELECT traj_id, turn, {TEXT} FROM store.turns ORDER BY traj_id, turn"
        assert [row for batch in batches for row in batch] == warehouse.sql(text).fetchall()
    sizes = [sum(len(text) for *_, text in batch) for batch in batches]
    assert (len(batches), sum(size > 5_000 for size in sizes)) == (7, 3)


def test_an_index_that_cannot_be_built_does_not_stop_packing(tmp_path: Path) -> None:
    some_run(tmp_path)
    (tmp_path / f".{INDEX}.new").mkdir()
    with raises("warehouse.not_compacted"):
        compact(tmp_path)
    assert len(list((tmp_path / "packs").iterdir())) == 1
    [problem] = check(tmp_path, repair=True).problems
    assert (
        problem.sentence == "The text index search.sqlite lacks turns of 1 packs; `userrl warehouse compact` adds them."
    )
    (tmp_path / f".{INDEX}.new").rmdir()
    assert compact(tmp_path).indexed == 15
    assert check(tmp_path).problems == []


@pytest.mark.parametrize("content", [b"garbage" * 1000, b""])
def test_a_damaged_text_index_is_named_by_the_check_and_removed_by_its_repair(tmp_path: Path, content: bytes) -> None:
    some_run(tmp_path)
    compact(tmp_path)
    whole = (tmp_path / INDEX).read_bytes()
    (tmp_path / INDEX).write_bytes(content or whole[: len(whole) // 2])
    [problem] = check(tmp_path).problems
    assert (problem.kind, problem.repaired) == ("index", False)
    assert problem.sentence.startswith("The text index search.sqlite is damaged: ")
    [problem] = check(tmp_path, repair=True).problems
    assert (problem.kind, problem.repaired) == ("index", True)
    assert maintain(tmp_path).compaction.indexed == 15
    assert check(tmp_path).problems == []


def test_two_compactors_do_not_run_at_once(tmp_path: Path) -> None:
    some_run(tmp_path)
    with FolderLock.take(tmp_path / "compactor"), raises("warehouse.busy"):
        compact(tmp_path)


@pytest.mark.parametrize(
    ("event", "ending", "nth"),
    [
        pytest.param("os.rename", "manifest.json", 1, id="before anything counts"),
        pytest.param("open", ".duckdb.building", 1, id="with a pack built and not yet durable"),
        pytest.param("os.rename", ".duckdb", 1, id="with a pack that has no name yet"),
        pytest.param("os.rename", "manifest.json", 2, id="with a pack that the manifest does not list"),
        pytest.param("os.remove", ".parquet", 1, id="after the manifest was published"),
    ],
)
def test_a_compaction_that_is_killed_loses_and_doubles_nothing(
    tmp_path: Path, event: str, ending: str, nth: int
) -> None:
    some_run(tmp_path)
    kill_at(event, ending, tmp_path, nth=nth)
    assert list(tmp_path.glob("runs/*/sealed/*"))
    assert counts(tmp_path) == (15, 15, 15, 5, 15, 5, 15)
    compact(tmp_path)
    assert not list(tmp_path.glob("runs/*/sealed/*"))
    assert counts(tmp_path) == (15, 15, 15, 5, 15, 5, 15)
    assert len(list((tmp_path / "packs").iterdir())) == 1


def test_words_are_found_newest_first_and_superseded_turns_are_not(tmp_path: Path) -> None:
    some_run(tmp_path)
    assert compact(tmp_path).indexed == 15
    with open_warehouse(tmp_path) as warehouse:
        assert warehouse.search("word3").pl()["step"].to_list() == [3, 3, 3]
        hits = warehouse.search("observation", limit=4).pl()
        assert (hits["step"].to_list(), hits["turn"].to_list()) == ([4, 4, 4, 3], [3, 2, 1, 3])
        assert warehouse.search('"observation 2"').pl()["turn"].unique().to_list() == [2]
        assert warehouse.search("nowhere").pl().height == 0
        assert warehouse.search("C++ (broken AND").pl().height == 0
        assert warehouse.unindexed() == 0
        with TurnLog.open(tmp_path, "r1") as log:
            log.event("rewind", step=2)
            play(log, [1.0], step=3, text="fresh")
        assert warehouse.search("word3").pl().height == 0
        assert warehouse.search("fresh").pl().height == 0
        assert warehouse.unindexed() == 1
        assert compact(tmp_path).indexed == 1
        assert warehouse.search("fresh", run="latest").pl().height == 1


def test_searching_without_an_index_says_how_to_make_one(tmp_path: Path) -> None:
    some_run(tmp_path)
    with open_warehouse(tmp_path) as warehouse, raises("search.no_index"):
        warehouse.search("x")
