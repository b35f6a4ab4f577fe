"""The fingerprint of an evaluation's protocol: what is in it, what it is compared with, and what a difference forbids."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import userrl
from curricula.suites import load_suite
from flows.cli.main import app
from tests.makers import raises
from tests.userrl_core.gyms.released_copy import write_copy
from userrl.comparison.document import comparison_sentences
from userrl.comparison.report import comparison_report, withheld_gyms
from userrl.machine.home import warehouse_dir
from userrl.protocols.suite import published_tables, still_different, suite_fingerprints
from userrl.reports.sides import find_sides
from userrl.run.fingerprint import (
    Row,
    _gym_settings,
    _source,
    continued_protocol,
    differences,
    differing,
    fingerprints,
    protocol_hash,
    settings,
)
from userrl.run.job import Actor
from userrl.run.readiness import resolve
from userrl_core.gyms import prompt
from userrl_core.gyms.registry import names
from userrl_core.gyms.registry import tasks as own_tasks
from userrl_core.records import RolloutContext, Task, Trajectory, Turn
from warehouse import TurnLog, open_warehouse


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERRL_PUBLISHED_DATA", str(write_copy(tmp_path / "copy")))
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


def own(suite: str, gym: str) -> Row:
    [row] = suite_fingerprints(load_suite(suite), [gym])
    return row


def log_run(
    name: str,
    row: Row | None,
    scores: tuple[float, ...] = (0.0, 1.0, 0.5),
    gym: str = "turtle",
    policy: str = "model",
) -> None:
    """A stored evaluation of a gym with this protocol."""
    with TurnLog.open(warehouse_dir(), name, run_fields={"name": name, "seed": 0}) as log:
        if row is not None:
            log.protocols([{**row, "policy": policy, "checkpoint": None}])
        for n, score in enumerate(scores):
            context = RolloutContext("evaluate", 0, "evaluate", policy)
            task = Task(gym, f"t{n}", "test", {"n": n}, "ours")
            trajectory = Trajectory(task, 0, 16, 1, context, user="gpt-4o")
            log.begin(trajectory)
            trajectory.turns.append(Turn(1, "answer", "", "", "", "", score))
            log.turn(trajectory, trajectory.turns[-1])
            trajectory.score, trajectory.stop_reason = score, "horizon"
            log.end(trajectory)


def test_a_suites_protocol_has_every_setting_and_one_hash() -> None:
    row = own("userrl-table3:ours", "turtle")
    assert [name for name in settings() if row[name] is None] == []
    assert (row["user_model"], row["judge"], row["horizon"], row["temperature"]) == ("gpt-4o", "gpt-4o", "16", "0.0")
    assert (row["user_prompts"] or "").startswith("ours ")
    assert json.loads(row["user_sampling"] or "") == {"max_tokens": 2048, "temperature": 0.0, "top_p": None}
    assert row["protocol_hash"] == protocol_hash(row)
    assert set(json.loads(row["texts"] or "")["user"]) >= {"_ANSWER", "_JUDGE"}


def test_one_changed_temperature_is_the_only_difference_and_another_hash() -> None:
    suite = load_suite("userrl-table3:ours")
    [one] = suite_fingerprints(suite, ["turtle"])
    [other] = suite_fingerprints(suite.model_copy(update={"temperature": 0.7}), ["turtle"])
    assert [(d.setting, d.ours, d.theirs) for d in differences(one, other)] == [
        ("temperature", "0.0", "0.7"),
        ("top_p", "greedy", "1.0"),
    ]
    assert one["protocol_hash"] != other["protocol_hash"]


def test_released_prompts_change_the_users_prompts_and_their_hash_follows_the_copy(home: Path) -> None:
    released = own("userrl-table3:ours+prompts", "turtle")
    assert {d.setting for d in differences(own("userrl-table3:ours", "turtle"), released)} == {
        "user_prompts",
        "agent_prompt",
    }
    path = home / "copy/userrl/gyms/TurtleGym/turtlegym/env/prompts.py"
    path.write_text(path.read_text().replace("You grade a story.", "You grade a story!"))
    from userrl_core.gyms.turtle.released_user import read_texts

    read_texts.cache_clear()
    changed = own("userrl-table3:ours+prompts", "turtle")
    assert [d.setting for d in differences(released, changed)] == ["user_prompts"]


@pytest.mark.parametrize("gym", names())
def test_a_field_that_an_earlier_version_did_not_have_is_no_difference(gym: str) -> None:
    row: dict[str, str | None] = {"gym": gym, "gym_settings": _gym_settings(gym, {})}
    row["protocol_hash"] = protocol_hash(row)
    fields = json.loads(row["gym_settings"] or "")
    for name in fields:
        earlier = {**row, "gym_settings": json.dumps({key: value for key, value in fields.items() if key != name})}
        assert differing([earlier, row]) == []
        assert "gym_settings" not in {difference.setting for difference in differences(earlier, row)}
        assert continued_protocol(row, earlier) == row


def test_a_field_that_has_gone_is_a_difference() -> None:
    row = {"gym": "wish", "gym_settings": _gym_settings("wish", {})}
    gone = {**row, "gym_settings": json.dumps({**json.loads(row["gym_settings"]), "gone": 1})}
    assert differing([gone, row]) == ["gym_settings"]


def test_the_scripted_demonstrator_is_no_part_of_a_protocol() -> None:
    assert _gym_settings("errand", {"demonstrator_depth": 2}) == _gym_settings("errand", {})
    assert _gym_settings("errand", {"reward": "terminal"}) != _gym_settings("errand", {})


def test_settings_of_a_gym_are_compared_field_by_field() -> None:
    one, other = own("userrl-table3:ours", "persuade"), own("userrl-table3:ours", "persuade")
    other["gym_settings"] = (other["gym_settings"] or "").replace('"paid": "previous"', '"paid": "best"')
    [difference] = differences(one, other)
    assert (difference.ours, difference.theirs) == ('{"paid": "previous"}', '{"paid": "best"}')


def test_a_makers_model_on_an_own_server_is_not_the_makers_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    assert own("userrl-table3:ours", "turtle")["user_model"] == "gpt-4o (own server)"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://notopenai.com/v1")
    assert own("userrl-table3:ours", "turtle")["user_model"] == "gpt-4o (own server)"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1")
    assert own("userrl-table3:ours", "turtle")["user_model"] == "gpt-4o"


def test_a_run_against_paper_suite_and_run(home: Path) -> None:
    row = own("userrl-table3:ours", "turtle")
    log_run("one", row)
    log_run("two", row | {"temperature": "0.7"})
    log_run("old", None)
    paper = userrl.protocol("one", "userrl table 3")
    assert [d.setting for d in paper.differences["turtle"]][:3] == ["tasks", "task_versions", "user_prompts"]
    assert not paper.equal
    assert userrl.protocol("one", "userrl-table3:ours").equal
    other = userrl.protocol("two", "one")
    assert [(d.setting, d.ours, d.theirs) for d in other.differences["turtle"]] == [("temperature", "0.7", "0.0")]
    assert "may not be subtracted" in str(other)
    unknown = userrl.protocol("old", "one").differences["turtle"]
    assert {d.setting for d in unknown if d.differs} == set(), (
        "what an old run did not record is unknown, not different"
    )
    assert "user_model" not in {d.setting for d in unknown}


def test_an_imported_run_meets_our_gym_under_its_other_name(home: Path) -> None:
    with TurnLog.open(warehouse_dir(), "imp", run_fields={"name": "imp", "kind": "imported"}) as log:
        context = RolloutContext("evaluate", 0, "evaluate", "gpt-4o")
        trajectory = Trajectory(Task("tau-bench", "1", "test", {}, "tau-bench"), 0, 30, 1, context, user="gpt-4o")
        log.begin(trajectory)
        trajectory.score, trajectory.stop_reason = 1.0, "success"
        log.end(trajectory)
    found = userrl.protocol("imp", "TARL tables 1 and 2, airline")
    known = [(d.setting, d.ours, d.theirs) for d in found.differences["tau-bench"] if d.differs]
    assert known == [("user_model", "gpt-4o", "gpt-4"), ("attempts", "1", "4")]


def test_a_suite_has_no_protocol_of_a_gym_that_it_does_not_play(home: Path) -> None:
    log_run("one", own("userrl-table3:ours", "turtle"))
    log_run("foreign", None, gym="tau2-telecom")
    for run, gym in (("one", "turtle"), ("foreign", "tau2-telecom")):
        report = userrl.protocol(run, "tarl-retail")
        assert (report.missing, report.differences, report.equal) == ((gym,), {}, False)


def test_the_beginning_of_several_tables_about_one_gym_is_refused(home: Path) -> None:
    log_run("one", own("userrl-table3:ours", "turtle"))
    with raises("argument.malformed", "UserBench table 3; UserBench table 4"):
        userrl.protocol("one", "UserBench")
    assert userrl.protocol("one", "AgentGym-RL").missing == ("turtle",)


def test_the_agents_prompt_says_whether_it_sees_the_turns_it_has_left() -> None:
    recipe = resolve("equalized-r2g", None, overrides={"evaluate.gyms": ["turtle"]}, check=False)
    shown = recipe.model_copy(update={"model": recipe.model.model_copy(update={"turns_left": True})})
    actor, tasks = Actor(label="RL", kind="checkpoint"), list(own_tasks("turtle", "test"))[:1]
    [[before], [after]] = fingerprints(recipe, actor, tasks), fingerprints(shown, actor, tasks)
    assert [difference.setting for difference in differences(before, after)] == ["agent_prompt"]


def test_a_docstring_is_no_part_of_the_agents_prompt() -> None:
    texts = _source(prompt)
    assert {prompt.__doc__, prompt.opening_messages.__doc__}.isdisjoint(texts)
    assert any("# Goal" in text for text in texts)


def test_a_served_demonstrator_is_not_recorded_as_scripted() -> None:
    overrides = {"evaluate.gyms": ["turtle"], "demonstrations.policy": "gpt-4o", "demonstrations.temperature": 0.5}
    recipe = resolve("equalized-r2g", None, overrides=overrides, check=False)
    tasks = list(own_tasks("turtle", "test"))[:1]
    [row] = fingerprints(recipe, Actor(label="demonstrator", kind="demonstrator"), tasks)
    assert (row["temperature"], row["top_p"], row["max_tokens"]) == ("0.5", "1.0", "2048")


def test_a_users_extra_body_is_part_of_its_sampling() -> None:
    options = {"model": "qwen", "base_url": "http://127.0.0.1/v1", "extra_body": {"thinking": False}}
    overrides = {"evaluate.gyms": ["turtle"], "evaluate.user": {"kind": "openai", "options": options}}
    recipe = resolve("equalized-r2g", None, overrides=overrides, check=False)
    [row] = fingerprints(recipe, Actor(label="RL", kind="checkpoint"), list(own_tasks("turtle", "test"))[:1])
    assert json.loads(row["user_sampling"] or "")["extra_body"] == {"thinking": False}


def test_an_earlier_evaluation_of_the_scripted_demonstrator_has_no_temperature(home: Path) -> None:
    log_run("old", None, policy="scripted(skill=0.5)")
    assert userrl.protocol("old").rows["turtle"]["temperature"] == "scripted"


def test_a_dated_user_is_named_where_nothing_is_subtracted(home: Path) -> None:
    log_run("dated", own("userrl-table3:ours", "turtle") | {"user_model": "gpt-4o-2024-08-06"})
    with open_warehouse(warehouse_dir()) as warehouse:
        [row, *_] = warehouse.rows("FROM beside_published(run := 'dated', every := true) WHERE gym = 'turtle'")
    assert not row["comparable"]
    assert "user model gpt-4o-2024-08-06 (published: gpt-4o)" in row["why_not"]


def test_the_command_prints_the_differences_and_names_what_it_knows(home: Path) -> None:
    log_run("one", own("userrl-table3:ours", "turtle"))
    shown = CliRunner().invoke(app, ["protocol", "one", "--against", "UserRL table 3"])
    assert shown.exit_code == 0
    assert "on tau2's board" not in shown.output, "the user is the same model"
    assert "what a user says and when it stops follows its prompt" in shown.output
    with raises("run.no_such_run", "UserBench table 4", "userrl-table3"):
        userrl.protocol("one", "UserBranch")


def test_compare_subtracts_only_where_the_protocols_are_not_known_to_differ(home: Path) -> None:
    row = own("userrl-table3:ours", "turtle")
    log_run("one", row)
    log_run("same", row | {"attempts": "4"}, (0.5, 1.0, 1.0))
    log_run("other", row | {"user_prompts": "released 0", "gym_settings": '{"threshold": 0.5}'}, (0.5, 1.0, 1.0))
    named = "turtle: user prompts, gym settings"

    with open_warehouse(warehouse_dir()) as warehouse:
        same, other = (
            comparison_report(warehouse, find_sides(warehouse, ["one", name])[0]) for name in ("same", "other")
        )
    assert (withheld_gyms(same), len(same.comparison.paired) > 0) == ({}, True)
    assert withheld_gyms(other) == {"turtle": ("user prompts", "gym settings")}
    assert other.comparison.paired == ()
    assert any(f"the protocols differ ({named})" in sentence for sentence in comparison_sentences(other))


def test_a_model_is_compared_with_the_scripted_demonstrator(home: Path) -> None:
    row = own("userrl-table3:ours", "turtle")
    log_run("model", row)
    log_run(
        "script", row | dict.fromkeys(("agent_tool", "temperature", "top_p", "max_tokens"), "scripted"), (1.0, 1.0, 1.0)
    )
    with open_warehouse(warehouse_dir()) as warehouse:
        report = comparison_report(warehouse, find_sides(warehouse, ["model", "script"])[0])
    assert (withheld_gyms(report), len(report.comparison.paired) > 0) == ({}, True)


def test_a_gate_is_inconclusive_where_the_protocols_differ(home: Path) -> None:
    row = own("userrl-table3:ours", "turtle")
    log_run("one", row)
    log_run("other", row | {"user_prompts": "released 0"}, (1.0, 1.0, 1.0))
    gate = userrl.compare("one", "other", policy={"rules": [{"rule": "not worse by more than .02"}]}).gate
    assert gate is not None
    assert [(result.answer, "user prompts" in result.sentence) for result in gate.results] == [("INCONCLUSIVE", True)]


def log_two_gyms(scores: tuple[float, ...] = (1.0, 1.0, 1.0)) -> None:
    """Runs `one` and `other` at turtle and function; the user of turtle has other prompts."""
    turtle, function = own("userrl-table3:ours", "turtle"), own("userrl-table3:ours", "function")
    log_run("one", turtle)
    log_run("one", function, gym="function")
    log_run("other", turtle | {"user_prompts": "released 0"}, (1.0, 1.0, 1.0))
    log_run("other", function, scores, gym="function")


def test_a_difference_at_one_gym_withholds_that_gym_alone(home: Path) -> None:
    log_two_gyms()
    compared = userrl.compare("one", "other")
    comparison = compared.report.comparison
    assert {(item.row, item.interval.estimate) for item in comparison.paired} == {("all tasks", 0.5), ("function", 0.5)}
    assert {item.row for item in comparison.scores} == {"all tasks", "function", "turtle"}
    [overall] = [item for item in comparison.scores if (item.row, item.side) == ("all tasks", "one")]
    assert overall.interval.units == 3, "the tasks of function"
    assert (
        "Scores of turtle are not subtracted, because the protocols differ (turtle: user prompts). 'all tasks' covers function "
        "alone." in " ".join(str(compared).split())
    )
    assert compared.as_json()["withheld"] == {"turtle": ["user prompts"]}


def test_a_rule_about_all_tasks_does_not_pass_where_a_gym_is_withheld(home: Path) -> None:
    log_two_gyms()
    rules = [{"rule": "not worse by more than .9", "population": gym} for gym in ("all tasks", "function", "turtle")]
    gate = userrl.compare("one", "other", policy={"rules": rules}).gate
    assert gate is not None
    every, function, turtle = gate.results
    assert [result.answer for result in gate.results] == ["INCONCLUSIVE", "PASS", "INCONCLUSIVE"]
    assert every.decision.interval == function.decision.interval
    assert (
        "not tested at gyms whose protocols differ (turtle: user prompts), so all tasks do not pass" in every.sentence
    )
    assert turtle.sentence == "not tested: the protocols of the sides differ (turtle: user prompts)."
    assert gate.exit_status == 4


def test_a_rule_about_all_tasks_fails_on_the_gyms_that_can_be_compared(home: Path) -> None:
    log_two_gyms((0.0, 0.0, 0.0))
    gate = userrl.compare("one", "other", policy={"rules": [{"rule": "better by more than .9"}]}).gate
    assert gate is not None
    [result] = gate.results
    assert (result.answer, gate.exit_status) == ("FAIL", 3)
    assert "not tested at gyms whose protocols differ (turtle: user prompts)." in result.sentence


def test_a_suites_text_lists_what_still_differs_from_its_table() -> None:
    [known, unknown] = still_different(load_suite("tarl-airline"))
    assert known.startswith("differs from TARL tables 1 and 2, airline: user prompts (tau)")
    assert "agent prompt (tau); agent tool (tau)" in unknown
    assert still_different(load_suite("quick")) == []


def test_every_table_of_the_papers_states_user_and_horizon() -> None:
    tables = published_tables()
    assert len(tables) == 11
    assert all(row["user_model"] and row["horizon"] for rows in tables.values() for row in rows)
    rows = {row["gym"]: row for row in tables["UserRL table 3"]}
    assert len(rows) == 8
    assert {gym for gym, row in rows.items() if None in row.values()} == {"travel"}, "its options are not public"


def test_a_tasks_version_does_not_depend_on_the_folder_of_its_database() -> None:
    from userrl.run.fingerprint import _version

    task = Task("tau", "t", "test", {"instruction": "x", "database": "/a"}, "published:userrl")
    assert _version(task) == _version(
        dataclasses.replace(task, payload={"instruction": "x", "database": "/b", "prompt": []})
    )
