"""``userrl reverify``: a stored evaluation under changed rules is a run of its own, and what cannot be scored is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import userrl
from flows.cli.measuring.reverify import reverify
from tests.makers import raises
from tests.userrl.evaluation.demonstrated import demonstrated
from userrl.comparison.report import comparison_report, withheld_gyms
from userrl.evaluation.reverified import refuse_lost_verdicts
from userrl.reports.sides import find_side, find_sides
from userrl.run.fingerprint import reverified_protocol, settings
from userrl.run.stored import stored_conversations
from userrl_core.seeding import content_hash
from warehouse import open_warehouse


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home with an evaluation of the demonstrator on ten tasks each of two gyms, and the run's id."""
    home = tmp_path_factory.mktemp("home")
    return home, demonstrated(home, ["intention", "function"])


@pytest.fixture
def rescored(evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str, str]:
    """The home, the run, and the run that scored its conversations again with a changed rule of intention."""
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    return home, run, userrl.reverify(run, changes={"intention": {"high": 2.0}}).reverified


def test_a_changed_rule_is_a_run_of_its_own_beside_the_old_one(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    for _ in range(2):  # a repeated command takes the place of its first result
        reverify(run, change=["intention.high=2.0"], as_json=True)
    said = json.loads(capsys.readouterr().out.split("\n}\n")[0] + "\n}")
    rows = {row["gym"]: row for row in said["rows"]}
    assert rows["function"]["changed"] == 0
    assert rows["function"]["before"] == rows["function"]["after"] == 1.0
    assert 0 < rows["intention"]["changed"] <= 10
    with open_warehouse(home / "warehouse") as warehouse:
        again = warehouse.query("gym_scores", run=said["reverified"]).pl().to_dicts()
        text = """select payload from tasks where gym = 'intention' and run_id = $run"""
        payloads = [json.loads(row[0]) for row in warehouse.sql(text, run=run).fetchall()]
        important = sum(detail["importance"] == 3 for payload in payloads for detail in payload["details"]) / 10
        parent = warehouse.sql("select parent, name from runs where run_id = $run", run=said["reverified"]).fetchall()
        assert warehouse.query("gym_scores", run=run).pl().height == 2
    assert {row["gym"]: row["n"] for row in again} == {"function": 10, "intention": 10}
    assert rows["intention"]["after"] == pytest.approx(rows["intention"]["before"] + important)
    assert parent[0][0] == run
    assert parent[0][1].startswith("evaluate-reverify-")
    done = userrl.reverify(run, changes={"intention": {"high": 2.0}})
    assert (done.reverified, done.as_json()) == (said["reverified"], said)
    assert done.to_polars().select("gym", "after").rows() == [(row["gym"], row["after"]) for row in said["rows"]]


def test_conversations_that_were_scored_again_do_not_take_the_place_of_their_run_in_groups_and_seed_scores(
    rescored: tuple[Path, str, str],
) -> None:
    home, run, again_id = rescored
    with open_warehouse(home / "warehouse") as warehouse:
        [(recipe, seed)] = warehouse.sql("select recipe, seed from runs where run_id = $run", run=run).fetchall()

        def members(text: str) -> list[str]:
            return [member.run_id for member in find_side(warehouse, text).runs]

        assert members(f"recipe={recipe},seed=*") == members(f"run_id={run}*") == [run]
        assert find_side(warehouse, f"recipe={recipe},seed=*").left_out == ()
        assert members(f"run_id={again_id}") == members(f"run_id={run}-reverify-*") == members(again_id) == [again_id]
        rows = warehouse.query("seed_scores", of_recipe=recipe).pl().select("run_id", "seed", "tasks").rows()
    assert rows == [(run, seed, 20)]


def test_a_comparison_withholds_the_gym_whose_rules_were_changed(
    rescored: tuple[Path, str, str],
) -> None:
    home, run, again_id = rescored
    with open_warehouse(home / "warehouse") as warehouse:
        report = comparison_report(warehouse, find_sides(warehouse, [run, again_id])[0])
        rows = warehouse.rows("FROM evaluation_protocols() ORDER BY gym, run_id = $run", run=again_id)
    assert withheld_gyms(report) == {"intention": ("gym settings",)}
    function, again, intention, changed = (row["protocol_hash"] for row in rows if row["run_id"] in (run, again_id))
    assert function == again
    assert len({function, intention, changed, None}) == 4


def test_the_protocol_of_a_stored_conversation_names_the_new_judge_where_somebody_judges() -> None:
    stored = {**dict.fromkeys([*settings(), "policy", "checkpoint", "texts"]), "gym": "intention", "protocol_hash": "h"}
    judge = ("openai", {"model": "qwen3-8b"})
    assert reverified_protocol({**stored, "judge": "rule"}, {}, judge)["judge"] == "qwen3-8b"
    assert reverified_protocol({**stored, "judge": "gpt-4o"}, {}, "rule")["judge"] == "rule"
    assert reverified_protocol({**stored, "judge": "gpt-4o"}, {}, None)["judge"] == "gpt-4o"
    assert reverified_protocol({**stored, "gym": "function", "judge": "none"}, {}, judge)["judge"] == "none"
    assert reverified_protocol({**stored, "protocol_hash": None}, {}, judge)["protocol_hash"] is None


def test_requests_for_different_gyms_have_runs_of_their_own(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    gyms = [["intention"], ["function"], ["intention", "function"], []]
    reverified = [userrl.reverify(run, judge="rule", gyms=names).reverified for names in gyms]
    assert userrl.reverify(run, judge="rule", gyms=["function", "intention"]).reverified == reverified[2]
    assert reverified[3] == f"{run}-reverify-{content_hash([run, 'evaluate', 'rule', {}])[:10]}"
    with open_warehouse(home / "warehouse") as warehouse:
        played = [warehouse.query("gym_scores", run=run_id).pl()["gym"].to_list() for run_id in reverified]
    assert played == [["intention"], ["function"], ["function", "intention"], ["function", "intention"]]


@pytest.mark.parametrize(
    ("options", "code", "fact"),
    [
        ({}, "argument.missing", "--set GYM.FIELD=VALUE"),
        ({"change": ["high"]}, "argument.malformed", "'high'"),
        ({"change": ["tau.check_outputs=true"]}, "argument.unknown_value", "gym 'tau'"),
        ({"change": ["intention.hihg=1"]}, "gym.bad_option", "'hihg'"),
        ({"change": ["intention.high=true"]}, "gym.bad_option", "high is a truth value"),
        (
            {"judge": '{"kind": "openai", "options": {"retries": true}}'},
            "recipe.invalid_value",
            "judge.options.retries is a truth",
        ),
        ({"judge": "rule", "phase": "train"}, "run.no_conversations", "phase train"),
    ],
)
def test_what_cannot_be_scored_again_is_refused_in_one_sentence(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, options: dict[str, object], code: str, fact: str
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    with raises(code, fact):
        reverify(run, **options)  # type: ignore[arg-type]


def test_verdicts_of_a_model_were_not_stored_so_a_rule_alone_cannot_change_their_score(
    evaluated: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, run = evaluated
    monkeypatch.setenv("USERRL_HOME", str(home))
    with open_warehouse(home / "warehouse") as warehouse:
        number = warehouse.sql("select count(*) from trajectories where run_id = $run", run=run).fetchall()
    assert number == [(20,)]
    [first, *_] = stored_conversations(run, "evaluate", ["intention"])
    first.user = "gpt-4o"
    with raises("judge.none"):
        refuse_lost_verdicts([first])
