"""``userrl audit judge``: a served judge beside the rule judge and beside itself, over stored conversations."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import typer

import userrl
from analysis.measure.readings import agreement
from flows.cli.measuring.audit import judge
from tests.makers import raises
from tests.mock_server import Answer, Body, MockServer
from tests.userrl.evaluation.demonstrated import demonstrated
from tests.userrl_core.judging.test_served_judge import all_right, marks, turns_of


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with an evaluation of the demonstrator on ten desk tasks, and the run's id."""
    home = tmp_path_factory.mktemp("home")
    return home, demonstrated(home, ["tau"])


def test_agreement_says_where_two_readings_place_the_deviation() -> None:
    found = agreement([([1, -1, 0], [1, 0, -1]), ([1, 1], [1, -1]), ([1, 1], [1, 1]), ([-1], [-1])])
    assert (found.conversations, found.turns, found.alike) == (4, 8, 5)
    assert (found.both, found.same_turn, found.apart) == (2, 1, 0.5)
    assert (found.only_first, found.only_second) == (0, 1)


def test_a_judge_that_wavers_is_held_against_the_rule_judge_and_itself(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    asked = itertools.count()

    def wavers(body: Body) -> Answer:
        turns = turns_of(body)
        return marks(*[1] * (turns - 1), -1) if next(asked) % 2 else all_right(body)

    with MockServer(wavers) as server:
        config = json.dumps({"model": "gpt-4.1", "options": {"base_url": server.base_url, "concurrency": 1}})
        judge(run, who=config, repeats=2, phase="evaluate", most=4, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["conversations"], said["readings"], said["marked"]) == (4, 8, 8)
    assert said["with_rule"]["only_first"] == 4
    assert said["with_rule"]["turns"] - said["with_rule"]["alike"] == 4
    assert (said["with_itself"]["conversations"], said["with_itself"]["alike"] < said["with_itself"]["turns"]) == (
        4,
        True,
    )
    assert said["categories"] == {"perfect": 4, "success_with_deviation": 4}
    assert said["price"] > 0
    judge(run, who="rule", phase="evaluate")
    assert "100.0% of" in capsys.readouterr().out


def test_a_judge_that_gives_nothing_usable_fails_and_one_that_is_not_named_is_asked_for(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    with MockServer(lambda body: Answer("no")) as server:
        config = json.dumps({"model": "m", "options": {"base_url": server.base_url, "retries": 0}})
        with pytest.raises(typer.Exit):
            judge(run, who=config, phase="evaluate", most=2)
    assert "4 without usable marks" in capsys.readouterr().out
    with raises("judge.none", "--judge"):
        judge(run, phase="evaluate")
    with raises("judge.no_gold_calls"):
        judge(run, who="rule")


def test_an_audit_of_a_judge_from_python_is_a_typed_result(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    audit = userrl.audit_judge(run, "rule", phase="evaluate", most=3)
    assert (audit.conversations, audit.readings, audit.marked) == (3, 6, 6)
    assert audit.to_polars().select("beside", "share").rows() == [("the rule judge", 1.0), ("itself", 1.0)]
    assert str(audit).startswith(f"rule on 3 conversations of {run} (evaluate), 6 readings, 0 without usable marks\n")
    assert capsys.readouterr() == ("", "")


def test_a_named_judge_with_the_released_prompt_reads_it_from_the_published_data(
    evaluated: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    monkeypatch.setenv("USERRL_PUBLISHED_DATA", str(tmp_path))
    (tmp_path / "tarl").mkdir()
    (tmp_path / "tarl" / "judge.md").write_text("Score the turns.")
    scores = {f"score_{n}": 1 for n in range(60)}
    with MockServer(lambda body: Answer(json.dumps(scores))) as server:
        config = {"model": "m", "prompts": "released", "options": {"base_url": server.base_url, "retries": 0}}
        userrl.audit_judge(run, config, phase="evaluate", most=1, repeats=1)
        [system, *_] = server.requests[0]["messages"]
    assert system["content"] == "Score the turns."
