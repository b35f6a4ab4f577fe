"""Lists of trajectories page by page, one conversation, one group."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.makers import raises
from tests.warehouse.makers import play
from warehouse import TurnLog, Warehouse, open_warehouse
from warehouse.query import browse
from warehouse.query.browse import SORTS, Filter
from warehouse.upkeep.compact import compact


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Forty trajectories, a few of them without a score, half of them packed."""
    root, draw = tmp_path_factory.mktemp("warehouse"), random.Random(3)
    for part in range(2):
        with TurnLog.open(root, "r1", run_fields={"name": "first"}) as log:
            for n in range(20):
                rewards = [draw.choice((0.0, 0.5, 1.0)) for _ in range(draw.randint(1, 4))]
                play(
                    log,
                    [None] if n % 7 == 0 else rewards,
                    gym=draw.choice(("travel", "turtle")),
                    task=f"t{n % 3}",
                    step=n % 4,
                    attempt=n,
                    score=sum(rewards),
                    text="green apples" if n == 5 else "hello",
                )
        if part == 0:
            compact(root, everything=True)
    with open_warehouse(root) as opened:
        yield opened


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("descending", [True, False])
def test_pages_forwards_and_back_are_the_whole_list_in_order(warehouse: Warehouse, sort: str, descending: bool) -> None:
    whole = browse.trajectories(warehouse, Filter(), sort=sort, descending=descending, size=100)
    assert (len(whole.rows), whole.before, whole.after) == (40, False, False)
    ids = [row["traj_id"] for row in whole.rows]
    assert len(set(ids)) == 40
    pages, after = [], None
    while True:
        page = browse.trajectories(warehouse, Filter(), sort=sort, descending=descending, after=after, size=7)
        pages.append([row["traj_id"] for row in page.rows])
        if not page.after:
            break
        after = pages[-1][-1]
    assert [traj_id for page in pages for traj_id in page] == ids
    for earlier, later in itertools.pairwise(pages):
        back = browse.trajectories(warehouse, Filter(), sort=sort, descending=descending, before=later[0], size=7)
        assert [row["traj_id"] for row in back.rows] == earlier
        assert (back.before, back.after) == (earlier is not pages[0], True)


def test_null_scores_come_last_in_either_direction(warehouse: Warehouse) -> None:
    for descending in (True, False):
        rows = browse.trajectories(warehouse, Filter(), sort="score", descending=descending).rows
        scores = [row["score"] for row in rows]
        known = [score for score in scores if score is not None]
        assert scores[len(known) :] == [None] * 6
        assert known == sorted(known, reverse=descending)


def test_filters_are_all_met(warehouse: Warehouse) -> None:
    wanted = Filter(run="r1", gym="travel", score_from=0.5, score_to=1.5, stop="success", phase="train")
    rows = browse.trajectories(warehouse, wanted).rows
    assert rows
    assert all(row["gym"] == "travel" and 0.5 <= row["score"] <= 1.5 for row in rows)
    assert browse.count(warehouse, wanted)["trajectories"] == len(rows)
    rejected = browse.trajectories(warehouse, Filter(reject_reason="user")).rows
    assert [row["admitted"] for row in rejected] == [False] * 6


def test_a_text_is_found_where_it_is_indexed_and_where_it_is_not_yet(warehouse: Warehouse) -> None:
    for text in ('"green apples"', "green"):
        rows = browse.trajectories(warehouse, Filter(text=text)).rows
        assert sorted(row["attempt"] for row in rows) == [5, 5]
    assert browse.trajectories(warehouse, Filter(text="pears")).rows == []


def test_an_address_is_read_into_a_filter() -> None:
    assert Filter.read({"gym": "tau", "step": "3", "score_from": "0.5", "stage": "", "other": "x"}) == Filter(
        gym="tau", step=3, score_from=0.5
    )
    with raises("argument.malformed"):
        Filter.read({"step": "x"})


def test_a_conversation_has_its_turns_credits_calls_run_and_task(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1", run_fields={"recipe": "equalized-r2g"}) as log:
        played = play(log, [0.0, 1.0], credits=[1.0, 1.0], calls=2)
        log.tasks([played.task])
        running = play(log, [0.5], end=False, task="t2")
        log.flush()
        with open_warehouse(tmp_path) as warehouse:
            whole = browse.conversation(warehouse, played.traj_id or 0)
            assert whole is not None
            assert [turn["advantage"] for turn in whole.turns] == [2.0, 2.0]
            assert (whole.run["recipe"], whole.task) == ("equalized-r2g", {"question": "t1"})
            calls = browse.model_calls(warehouse, played.traj_id or 0, 2)
            assert [(call["n"], call["role"]) for call in calls] == [(1, "user"), (2, "user")]
            half = browse.conversation(warehouse, running.traj_id or 0)
            assert half is not None
            assert (half.trajectory["stop_reason"], len(half.turns)) == (None, 1)
            assert browse.conversation(warehouse, 17) is None


def test_a_group_is_its_trajectories_and_where_each_parts_from_the_others(tmp_path: Path) -> None:
    with TurnLog.open(tmp_path, "r1") as log:
        first = play(log, [0.0, 1.0], attempt=0)
        play(log, [0.0, 1.0], attempt=1)
        play(log, [0.0, 0.0, 0.0], attempt=2, score=0.25)
        play(log, [0.0], attempt=3, text="other", score=0.0)
        play(log, [0.0], task="t9")
        log.flush()
        with open_warehouse(tmp_path) as warehouse:
            members = browse.group(warehouse, first.traj_id or 0)
            assert [member.trajectory["attempt"] for member in members] == [0, 1, 2, 3]
            assert browse.parting([member.turns for member in members]) == [None, None, 3, 1]
            apart = browse.spread_groups(warehouse, "r1")
            assert [(row["task_id"], row["n"], row["apart"]) for row in apart] == [("t1", 4, 1.0)]
            assert (apart[0]["best_id"], apart[0]["worst_id"]) == (
                members[0].trajectory["traj_id"],
                members[3].trajectory["traj_id"],
            )
