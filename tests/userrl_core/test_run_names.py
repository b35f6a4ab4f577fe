"""Which run a text means."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers import raises
from userrl_core.run_names import RunName, choose_run

HERE = Path("home")
RUNS = [
    RunName("a-1", "a", 1.0),
    RunName("a-2", "a", 3.0),
    RunName("b-1", "b", 2.0),
    RunName("e-1", "evaluate-a-2", 4.0),
    RunName("a-2-audit", "audit-credit-0123456789", 5.0),
    RunName("i-1", "conversations", 6.0, imported=True),
    RunName("f-1", "broken", 7.0, failed=True),
]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("latest", "a-2"), ("a", "a-2"), ("a-1", "a-1"), ("b", "b-1"), ("b-", "b-1"), ("evaluate-a-2", "e-1")],
)
def test_a_run_is_meant_by_latest_id_name_or_beginning(text: str, chosen: str) -> None:
    assert choose_run(text, RUNS, HERE) == chosen


def test_what_means_no_run_or_several_is_refused_in_a_sentence() -> None:
    with raises("run.no_such_run", "'a-'"):
        choose_run("a-", RUNS, HERE)
    with raises("run.no_such_run", "'b-2'", "did you mean 'b-1'"):
        choose_run("b-2", RUNS, HERE)
    with raises("run.no_such_run"):
        choose_run("latest", [], HERE)


def test_with_imports_alone_the_latest_is_refused_and_one_is_named() -> None:
    with raises("run.no_such_run", "only imported ones", "Name one: i-2"):
        choose_run("latest", [RunName("i-1", "a", 1.0, imported=True), RunName("i-2", "b", 2.0, imported=True)], HERE)


def test_with_evaluations_alone_the_newest_is_the_latest() -> None:
    assert choose_run("latest", [RunName("e-1", "evaluate-x", 1.0), RunName("d-1", "distill", 2.0)], HERE) == "d-1"


@given(st.permutations(RUNS), st.sampled_from(["latest", "a", "b-", "a-1"]))
def test_the_order_in_which_runs_are_listed_changes_nothing(runs: list[RunName], text: str) -> None:
    assert choose_run(text, runs, HERE) == choose_run(text, RUNS, HERE)


def test_a_run_that_failed_before_rl_is_the_latest_only_if_there_is_no_other() -> None:
    failed = RunName("f-1", "broken", 7.0, failed=True)
    assert choose_run("latest", [failed, RunName("e-1", "evaluate-x", 9.0)], HERE) == "f-1"
    assert choose_run("f-1", RUNS, HERE) == "f-1"
