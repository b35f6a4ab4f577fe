"""Every turn is found by a search or counted as not indexed yet, in whatever order its writer's files were sealed."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.warehouse.makers import make_turn, play
from warehouse import TurnLog, open_warehouse
from warehouse.files.layout import LIVE_LINE_BYTES
from warehouse.search.index import INDEX
from warehouse.upkeep.compact import compact

GIANT = "x" * LIVE_LINE_BYTES


def missing(root: Path, words: list[str]) -> tuple[list[str], int]:
    """Which of these words no turn is found by, and how many turns the index is said to lack."""
    with open_warehouse(root) as warehouse:
        return [word for word in words if not len(warehouse.search(word))], warehouse.unindexed()


def test_a_turn_that_is_sealed_at_once_is_sealed_after_the_turns_before_it(tmp_path: Path) -> None:
    words = [f"word{n}" for n in range(5)]
    with TurnLog.open(tmp_path, "r1") as log:
        for word in words:
            play(log, [0.0], text=word)
        play(log, [0.0], text=f"{GIANT} giant")
        compact(tmp_path, everything=True)
        assert missing(tmp_path, [*words, "giant"]) == ([], 0)


class Slow:
    """A text that takes as long to write down as another thread needs to fill the segment."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __str__(self) -> str:
        self.begun.set()
        assert self.go_on.wait(60)
        return "slow"


def test_a_thread_that_is_overtaken_at_the_end_of_a_segment_is_indexed(tmp_path: Path) -> None:
    slow = Slow()
    log = TurnLog.open(tmp_path, "r1", segment_rows=2)
    turn = make_turn(1, 0.0)
    turn.content = slow  # type: ignore[assignment]
    thread = threading.Thread(target=log.turn, args=(play(log, [], end=False), turn))
    thread.start()
    assert slow.begun.wait(60)
    play(log, [0.0, 0.0], text="quick")
    slow.go_on.set()
    thread.join()
    while not list(tmp_path.glob("runs/*/sealed/turns.*")):
        time.sleep(0.01)
    compact(tmp_path, everything=True)
    assert missing(tmp_path, ["quick", "slow"]) == (["slow"], 1)
    log.close()
    compact(tmp_path, everything=True)
    assert missing(tmp_path, ["quick", "slow"]) == ([], 0)


def older_layout(root: Path) -> None:
    """Take the index for one of an earlier version, which says nothing of what it has."""
    if (root / INDEX).exists():
        with closing(sqlite3.connect(root / INDEX)) as index:
            index.execute("PRAGMA user_version = 3")
            index.execute("DROP TABLE IF EXISTS segments")


ACTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["turn"] * 6 + ["giant"]), st.integers(0, 1)),
        st.tuples(st.sampled_from(["restart", "older"]), st.integers(0, 1)),
        st.tuples(st.just("compact"), st.sampled_from(["", "", "index=False", "everything=True"])),
    ),
    min_size=4,
    max_size=8,
)


@settings(max_examples=4, deadline=None)
@given(ACTS)
def test_whatever_was_written_and_packed_each_turn_is_found_or_counted(acts: list[tuple[str, int | str]]) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        root, words = Path(folder), []
        logs = [stack.enter_context(TurnLog.open(root, "r1", segment_rows=3)) for _ in range(2)]
        for act, how in [*acts, ("compact", "everything=True"), ("compact", "")]:
            if act in ("turn", "giant"):
                words.append(f"word{len(words)}")
                play(logs[int(how)], [0.0], text=f"{GIANT if act == 'giant' else ''} {words[-1]}")
            elif act == "restart":
                logs[int(how)].close()
                logs[int(how)] = stack.enter_context(TurnLog.open(root, "r1", segment_rows=3))
            elif act == "older":
                older_layout(root)
                with open_warehouse(root) as warehouse:
                    assert warehouse.unindexed() == len(words)
            elif how == "index=False":
                compact(root, index=False, many_small_packs=2)
            else:
                compact(root, everything=bool(how), many_small_packs=2)
                lost, counted = missing(root, words)
                assert counted == len(lost)
        stack.close()
        compact(root)
        assert missing(root, words) == ([], 0)
