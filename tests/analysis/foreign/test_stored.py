"""An imported run: stored values, nulls, and the names that never select it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import userrl
from flows.cli.runs import delete_run, list_runs
from tests.analysis.foreign.test_formats import DATA
from tests.makers import raises
from tests.published import published
from tests.warehouse.makers import play
from userrl.reports.sides import find_sides
from warehouse import TurnLog, open_warehouse
from warehouse.files.runs import find_run
from warehouse.upkeep.check import check
from warehouse.upkeep.compact import compact
from warehouse.upkeep.exchange.conversations import conversations, write_messages


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("USERRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def rows(text: str) -> list[dict[str, Any]]:
    with userrl.warehouse() as warehouse:
        return warehouse.rows(text)


def test_an_imported_run_has_its_kind_and_no_settings_of_training() -> None:
    (run,) = userrl.import_logs(DATA / "tau2.json", name="o4")
    (row,) = rows("FROM runs")
    assert (row["run_id"], row["kind"], row["name"]) == (run.run, "imported", "o4")
    assert {row[name] for name in ("seed", "shaping", "score", "gamma", "k", "form", "ddof", "horizon")} == {None}
    assert run.run.startswith("import-tau2-")


def test_what_a_file_does_not_say_is_null_and_not_zero() -> None:
    userrl.import_logs(DATA / "tau2.json")
    trajectories = rows("FROM trajectories ORDER BY traj_id")
    unknown = ("stage", "step", "horizon", "return_sum", "score_r2g", "flags", "env_seconds", "prompt_tokens")
    assert {row[name] for row in trajectories for name in unknown} == {None}
    turns = rows("FROM turns ORDER BY traj_id, turn")
    assert {row[name] for row in turns for name in ("reward", "shaped", "advantage", "flags", "stage")} == {None}
    assert [row["prompt_tokens"] for row in turns[:3]] == [None, 120, 150]
    for query, column in (
        ("effective_turns", "effective_turns"),
        ("time_weighted", "time_weighted"),
        ("reward_counts", "avg_number_of_1"),
    ):
        assert {row[column] for row in rows(f"FROM {query}()")} == {None}


def test_turn_rewards_of_a_file_are_stored_and_summed() -> None:
    userrl.import_logs(DATA / "verifiers_results.jsonl")
    assert [row["reward"] for row in rows("FROM turns ORDER BY traj_id, turn")] == [0.0, 1.0, 0.25, 0.0, None, None]
    trajectories = rows("FROM trajectories ORDER BY attempt")
    assert [(row["score"], row["return_sum"], row["admitted"]) for row in trajectories] == [
        (1.0, 1.0, True),
        (0.25, 0.25, True),
        (None, None, False),
    ]


def test_importing_a_file_again_changes_nothing(tmp_path: Path) -> None:
    (first,) = userrl.import_logs(DATA / "tau2.json", name="o4")
    shutil.copy(DATA / "tau2.json", tmp_path / "copy.json")
    stored = rows("FROM turns ORDER BY traj_id, turn")
    (again,) = userrl.import_logs(tmp_path / "copy.json", name="another")
    assert (again.run, again.name, again.again, first.again) == (first.run, "o4", True, False)
    assert rows("FROM turns ORDER BY traj_id, turn") == stored


def test_what_a_killed_import_left_is_removed(home: Path) -> None:
    left = home / "warehouse" / "importing" / "run=import-tau2-0"
    left.mkdir(parents=True)
    (left / "run.json").write_text("{")
    userrl.import_logs(DATA / "tau2.json")
    assert not left.exists()


def test_an_imported_run_packs_and_is_sound(home: Path) -> None:
    userrl.import_logs(DATA / "tau2.json")
    stored = rows("SELECT * EXCLUDE (seq) FROM turns ORDER BY traj_id, turn")
    compact(home / "warehouse", everything=True)
    assert check(home / "warehouse").sound
    assert rows("SELECT * EXCLUDE (seq) FROM turns ORDER BY traj_id, turn") == stored


def test_latest_and_groups_of_runs_never_mean_an_imported_run() -> None:
    (run,) = userrl.import_logs(DATA / "tau2.json", name="o4")
    with userrl.warehouse() as warehouse:
        for text in ("latest", "recipe=*", "name=o4", "model=o4-mini", "seed=*"):
            with raises("run.no_such_run"):
                find_sides(warehouse, [text, run.run])
        with raises("run.no_such_run"):
            warehouse.query("gym_scores", run="latest")
    with raises("run.no_such_run", f"Name one: {run.run}"):
        userrl.report()
    assert userrl.report("o4") == run
    assert userrl.report(run.run[:14]) == run


def test_pass_hat_k_and_pass_at_k() -> None:
    (run,) = userrl.import_logs(DATA / "tau2.json")
    (policy,) = run.policies
    assert (policy.tasks, policy.conversations, policy.scored) == (2, 4, 3)
    # k = 1: the first task has one success of two, the second none of one. k = 2: the first task alone.
    assert dict(policy.pass_hat) == {1: 0.25, 2: 0.0}
    assert dict(policy.pass_at) == {1: 0.25, 2: 1.0}
    assert policy.dollars == pytest.approx({"policy": 0.06, "user": 0.008})


def test_two_imported_models_are_compared_as_by_hand(tmp_path: Path) -> None:
    content = json.loads((DATA / "tau2.json").read_text())
    content["info"]["agent_info"]["llm"] = "gpt-4.1"
    content["simulations"] = content["simulations"][:3]
    for simulation, reward in zip(content["simulations"], (1.0, 1.0, 0.5), strict=True):
        simulation["reward_info"]["reward"] = reward
    (tmp_path / "b.json").write_text(json.dumps(content))
    (a,) = userrl.import_logs(DATA / "tau2.json", name="a")
    (b,) = userrl.import_logs(tmp_path / "b.json", name="b")
    compared = userrl.compare("a", "b")
    scores = compared.to_polars().filter(which="best")
    assert scores["score"].to_list() == [0.25, 0.75]  # means over tasks: (.5 + 0) / 2 and (1 + .5) / 2
    assert all(row["low"] < row["score"] < row["high"] for row in scores.to_dicts())
    (difference,) = [item for item in compared.as_json()["differences"] if item["checkpoint"] == "best"]
    assert difference["estimate"] == pytest.approx(0.5)
    assert difference["units"] == 2
    assert f"{b.run} compared with {a.run}" in str(compared)


def test_the_recorded_airline_conversations_are_stored_with_their_rewards() -> None:
    path = published("tau-bench") / "trajectories_gpt-4o-airline.json"
    userrl.import_logs(path)
    recorded = {(str(row["task_id"]), row["trial"]): row["reward"] for row in json.loads(path.read_text())}
    stored = {(row["task_id"], row["attempt"]): row["score"] for row in rows("FROM trajectories")}
    assert stored == recorded
    (at_4,) = [row for row in rows("FROM pass_hat_k()") if row["k"] == 4]
    solved = [task for task, _ in recorded if sum(recorded[task, trial] for trial in range(4)) == 4]
    assert at_4["pass_hat_k"] == pytest.approx(len(set(solved)) / 50)


def test_markup_in_a_file_is_text(tmp_path: Path) -> None:
    text = "<script>alert(1)</script> [link](http://x) \x1b[31m '; DROP TABLE turns"
    row = {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}], "model": text}
    (tmp_path / "chats.jsonl").write_text(json.dumps(row | {"score": 1.0}))
    (run,) = userrl.import_logs(tmp_path / "chats.jsonl", name=text)
    assert rows("FROM turns")[0]["content"] == text
    assert "\x1b" not in str(run)
    page = userrl.reports.import_report.import_document(run).html()
    assert "<script>alert" not in page


def test_an_import_is_listed_and_deleted_and_listed_again_after_another_import(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [run] = userrl.import_logs(DATA / "tau2.json")
    capsys.readouterr()

    def listed() -> list[tuple[str, str]]:
        list_runs(as_json=True)
        return [(row["run"], row["state"]) for row in json.loads(capsys.readouterr().out)]

    assert listed() == [(run.run, "imported")]
    delete_run(run.run, yes=True)
    capsys.readouterr()
    assert listed() == []
    userrl.import_logs(DATA / "tau2.json")
    assert listed() == [(run.run, "imported")]


def test_latest_does_not_mean_a_copy_of_a_trained_run(tmp_path: Path, home: Path) -> None:
    with TurnLog.open(tmp_path / "other", "trained", run_fields={"recipe": "errand"}) as log:
        play(log, [1.0], phase="evaluate")
    with open_warehouse(tmp_path / "other") as warehouse:
        write_messages(conversations(warehouse, "trained"), tmp_path / "trained.jsonl")
    with raises("argument.conflict", "keep their names. Leave out --name."):
        userrl.import_logs(tmp_path / "trained.jsonl", name="mine")
    userrl.import_logs(tmp_path / "trained.jsonl")
    assert rows("SELECT run_id, kind, recipe FROM runs") == [
        {"run_id": "trained", "kind": "imported", "recipe": "errand"}
    ]
    with raises("run.no_such_run", "only imported ones"):
        find_run(home / "warehouse", "latest")


def test_a_file_name_that_is_no_utf_8_is_a_run_s_name_and_such_a_given_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"caf\xe9 a.jsonl")
    file.write_text('{"messages": [{"role": "assistant", "content": "b"}], "score": 1}')
    with raises("argument.malformed", r"name: 'caf\udce9' is not text in UTF-8"):
        userrl.import_logs(file, name=os.fsdecode(b"caf\xe9"))
    assert userrl.import_logs(file)[0].name == "caf\ufffd a"


@pytest.mark.parametrize("name", ["latest", "people"])
def test_an_import_takes_no_name_that_means_another_run(home: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.jsonl"
    file.write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "score": 1}\n'
    )
    with raises("argument.conflict"):
        userrl.import_logs(file)
    assert userrl.import_logs(file, name="mine")[0].name == "mine"
    assert userrl.import_logs(file)[0].again
